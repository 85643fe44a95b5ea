"""Runs one peer in this process and prints what it took, as one line of JSON.

    python tests/benchmarks/peers/common.py PEER CLIP MODEL [--models FOLDER] [--set NAME=VALUE]...

A peer is a module beside this file whose ``run(job)`` sends every frame of ``job.clip`` through
the model and ``job.finish``, in any order. It sees this module only through ``job``, as it runs
in an environment of its own with nothing of this project in it. The first frames are a warm-up,
the last ones are there so that what was decoded ahead is alike at both ends of the measurement.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import resource
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["SIDE", "TAIL", "WARM_UP", "Job", "Meter", "postprocess", "properties"]

SIDE = 320
WARM_UP = 150
TAIL = 60

_THRESHOLD = 0.5
_MOST = 100

# Whose versions are told, where they are installed.
_PACKAGES = (
    "openvino", "opencv-python", "opencv-python-headless", "numpy", "npu-pipeline", "av",
    "streamvision", "openvino-model-api", "ultralytics", "torch",
)  # fmt: skip

Outputs = dict[str, npt.NDArray[Any]]


def postprocess(outputs: Outputs, width: int, height: int) -> float:
    """The same for every peer: boxes on the frame, or the largest feature.

    Returns a figure that depends on the image, to see that all did the same work.
    """
    if "features" in outputs:
        return float(outputs["features"].max())
    scores = outputs["scores"].reshape(-1)
    kept = np.flatnonzero(scores > _THRESHOLD)
    kept = kept[np.argsort(scores[kept])[::-1][:_MOST]]
    boxes = outputs["boxes"].reshape(-1, 4)[kept] * (width, height, width, height)
    return float(len(boxes))


def properties(**more: Any) -> dict[str, Any]:
    """OpenVINO's properties: full precision for all, the rest as each peer is served best."""
    return {"INFERENCE_PRECISION_HINT": "f32", **more}


class Meter:
    """CPU time of the process with all its threads, and wall time, between two frames."""

    def __init__(self, frames: int) -> None:
        self.finished = 0
        self.total = 0.0
        self._first, self._last = WARM_UP, WARM_UP + frames
        self._stamps: list[tuple[float, float]] = []

    def tick(self, figure: float) -> None:
        """One frame is finished."""
        self.finished += 1
        self.total += figure
        if self.finished in (self._first, self._last):
            usage = resource.getrusage(resource.RUSAGE_SELF)
            self._stamps.append((usage.ru_utime + usage.ru_stime, time.monotonic()))

    def report(self) -> dict[str, float]:
        """Frames a second, CPU milliseconds for each, peak of memory, mean of the figures."""
        if self.finished != self._last + TAIL:
            raise SystemExit(f"{self.finished} frames came, not {self._last + TAIL}")
        (cpu, wall), (cpu_end, wall_end) = self._stamps
        frames = self._last - self._first
        return {
            "fps": frames / (wall_end - wall),
            "cpu_ms": (cpu_end - cpu) / frames * 1e3,
            "rss_mb": _peak_mb(),
            "frames": self.finished,
            "checksum": self.total / self.finished,
        }


def _peak_mb() -> float:
    """Not ``ru_maxrss``, which begins with the memory of the process that started this one."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise SystemExit("no VmHWM in /proc/self/status")


class Job:
    """What a peer is given. ``options`` replace a peer's own choices, to try others."""

    side = SIDE
    properties = staticmethod(properties)
    postprocess = staticmethod(postprocess)

    def __init__(self, clip: Path, model: str, models: Path, options: dict[str, str]) -> None:
        self.clip = str(clip)
        self.model_name = model
        self.width, self.height = (int(part) for part in clip.stem.split("-")[0].split("x"))
        self.frames = int(clip.stem.split("-")[1])
        self.meter = Meter(self.frames - WARM_UP - TAIL)
        self.measured: dict[str, float] | None = None  # by a peer that measures otherwise
        self._models = models
        self._options = options
        self._used: set[str] = set()

    def model(self, *, in_graph: bool = True) -> str:
        """IR with a uint8 NHWC input and its preprocessing inside, or plain float32 NCHW."""
        return str(self._models / f"{self.model_name}{'' if in_graph else '_f32'}.xml")

    @staticmethod
    def beside(name: str) -> Any:
        """A module beside the peer's, which several of them use."""
        return _load(name)

    def option(self, name: str, default: str) -> str:
        """A setting of the peer: its own choice unless the command line has another."""
        self._used.add(name)
        return self._options.get(name, default)

    def finish(self, outputs: Outputs) -> None:
        """Postprocess a frame's outputs, by their names, and count it."""
        self.meter.tick(postprocess(outputs, self.width, self.height))

    def report(self) -> dict[str, Any]:
        """What it took, and with which versions; unknown options are mistakes."""
        unknown = self._options.keys() - self._used
        if unknown:
            raise SystemExit(f"no such option: {', '.join(sorted(unknown))}")
        return {**(self.measured or self.meter.report()), "versions": _versions()}


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _load(name: str) -> ModuleType:
    """A module beside this file, by its path, as packages of the same name must not be hidden."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"peer_{name}", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"no peer {name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Load the peer, run it, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer")
    parser.add_argument("clip", type=Path, help="WIDTHxHEIGHT-FRAMES.mp4")
    parser.add_argument("model", choices=("det", "tiny"))
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    folder = Path(__file__).resolve().parent
    # So that a peer's file does not stand before the package of the same name.
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != folder]
    peer = _load(given.peer)
    options = dict(word.split("=", 1) for word in given.set)
    job = Job(given.clip, given.model, given.models, options)
    peer.run(job)
    print(json.dumps(job.report()))  # noqa: T201


if __name__ == "__main__":
    main()
