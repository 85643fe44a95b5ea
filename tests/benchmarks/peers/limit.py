"""Not a peer: what the parts allow, measured one by one in the same round as the peers.

``python -m pipeline bench`` on the configuration of ``ours`` gives the time and the CPU time of
decode, preprocess and infer, each alone; the common postprocess is added to these, as a raw
pipeline has none. The limit is the least of 1 / time of each and cores / CPU time of all, as
docs/benchmark.md defines it, and ``cpu_ms`` is the sum: a pipeline that costs nothing itself.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tests.benchmarks.peers.common import Job

__all__ = ["run"]


def run(job: Job) -> None:
    """Measure the parts; no frame goes through a pipeline of this process."""
    seconds = job.option("seconds", "1")
    config = _ours().config(job)
    with tempfile.TemporaryDirectory() as folder:
        path, found = Path(folder) / "config.yaml", Path(folder) / "found.json"
        path.write_text(json.dumps(config))  # YAML, too
        command = [sys.executable, "-m", "pipeline", "bench", str(path)]
        command += ["--seconds", seconds, "--json", str(found)]
        subprocess.run(command, check=True, capture_output=True)
        report = json.loads(found.read_text())
    own = _postprocess_ms(job)
    cpu_ms = sum(report["stage_cpu_ms"].values()) + own
    bounds = {key: fps for key, fps in report["bounds_fps"].items() if fps and key != "cpu"}
    bounds |= {"postprocess": 1e3 / own, "cpu": len(os.sched_getaffinity(0)) / cpu_ms * 1e3}
    job.measured = {"fps": min(bounds.values()), "cpu_ms": cpu_ms}
    job.measured |= {f"bound_{key}_fps": fps for key, fps in bounds.items()}
    job.measured |= {f"{key}_cpu_ms": ms for key, ms in report["stage_cpu_ms"].items()}


def _ours() -> Any:
    path = Path(__file__).with_name("ours.py")
    spec = importlib.util.spec_from_file_location("peer_ours", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _postprocess_ms(job: Job, times: int = 2000) -> float:
    """Milliseconds of the common postprocess, on figures like those of the models."""
    random = np.random.default_rng(1)
    outputs = {"features": random.random((1, 8, 20, 20), np.float32)}
    if job.model_name == "det":
        scores = random.random((1, 400, 1), np.float32) * np.float32(0.504)
        outputs = {"boxes": random.random((1, 400, 4), np.float32), "scores": scores}
    began = time.thread_time()
    for _ in range(times):
        job.postprocess(outputs, job.width, job.height)
    return (time.thread_time() - began) / times * 1e3
