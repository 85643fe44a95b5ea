"""Latency, overload and the cost of more cameras: what a live pipeline costs and how old it is.

    python tests/benchmarks/live.py FOLDER [--rounds 5] [--seconds 5] [--markdown FILE]

FOLDER holds the models of ``workload.py``, and gets them where they are missing. Each measurement
is a process of its own; they take turns, and the figures are medians of the rounds.

- ``direct``: 30 frames a second, ready in memory: resize, swap colors, infer, by OpenCV and
  OpenVINO's own API on one thread. From when a frame is due to its outputs.
- ``unloaded``: the same frames given to a live pipeline, from when it gets one to its result.
- ``overload``: 600 frames a second offered to the same pipeline.
- ``cameras-N``: N synthetic cameras of 100 frames a second each on the simulated NPU; CPU time
  for each result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__: list[str] = []

WIDTH, HEIGHT, RATE = 640, 480, 30.0
OFFERED = 600.0
CAMERAS = (1, 2, 3, 4)
WARM_UP = 15


def frames() -> list[npt.NDArray[np.uint8]]:
    """A few images that are not all alike."""
    random = np.random.default_rng(1)
    return [random.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8) for _ in range(8)]


def direct(folder: Path, seconds: float) -> dict[str, float]:
    """The call that one would make by hand, at the camera's pace."""
    import cv2
    import openvino

    properties = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(str(folder / "det.xml"), "CPU", properties)
    request = compiled.create_infer_request()
    small, rgb = np.empty((320, 320, 3), np.uint8), np.empty((1, 320, 320, 3), np.uint8)
    request.set_input_tensor(openvino.Tensor(rgb))
    images, ages = frames(), []
    due = time.monotonic()
    for number in range(int(seconds * RATE)):
        due += 1 / RATE
        time.sleep(max(0.0, due - time.monotonic()))
        began = time.monotonic()
        cv2.resize(images[number % len(images)], (320, 320), dst=small)
        cv2.cvtColor(small, cv2.COLOR_BGR2RGB, dst=rgb[0])
        request.infer()
        ages.append(time.monotonic() - began)
    return ages_of(ages)


def live(folder: Path, seconds: float, rate: float) -> dict[str, float]:
    """Frames handed to a live pipeline at this rate."""
    from pipeline import Pipeline
    from pipeline.pipeline import new_event_loop

    async def given() -> AsyncIterator[npt.NDArray[np.uint8]]:
        images, loop = frames(), asyncio.get_running_loop()
        due = loop.time()
        for number in range(int(seconds * rate)):
            due += 1 / rate
            await asyncio.sleep(due - loop.time())
            yield images[number % len(images)]

    config = {
        "source": {"overflow": "latest"},
        "model": {
            "path": str(folder / "det.xml"),
            "options": {"inference_precision": "f32"},
            "contexts": 1,
        },
        "preprocess": {"resize": "stretch"},
        "postprocess": {"kind": "raw"},
    }

    async def main() -> list[float]:
        async with Pipeline(config, frames=given(), live=True) as pipeline:
            return [result.stamps.latency_ns / 1e9 async for result in pipeline]

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return ages_of(runner.run(main()))


def ages_of(ages: list[float]) -> dict[str, float]:
    """Percentiles in ms, without the first frames."""
    p50, p99 = np.percentile(ages[WARM_UP:], (50, 99)) * 1e3
    return {"p50_ms": float(p50), "p99_ms": float(p99), "results": len(ages)}


def cameras(count: int, seconds: float) -> dict[str, float]:
    """CPU time for each result, the start left out."""
    from pipeline import Pipeline
    from pipeline.pipeline import new_event_loop

    uri = f"synthetic:?width={WIDTH}&height={HEIGHT}&fps=100"
    config = {
        "cameras": {f"c{number}": {"uri": uri} for number in range(count)},
        "model": {
            "engine": "simulated",
            "contexts": 2,
            "input_shape": [1, 320, 320, 3],
            "options": {"latency_ms": 1},
        },
        "postprocess": {"kind": "raw"},
    }

    async def main() -> tuple[float, int]:
        results, began = 0, 0.0
        async with Pipeline(config, max_frames=int(seconds * 100)) as pipeline:
            async for _ in pipeline:
                results += 1
                if results == WARM_UP * count:
                    began = cpu_seconds()
        return cpu_seconds() - began, results - WARM_UP * count

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        spent, results = runner.run(main())
    return {"cpu_ms": spent / results * 1e3, "results": results}


def cpu_seconds() -> float:
    """User and system time of all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def one(name: str, folder: Path, seconds: float) -> dict[str, float]:
    """The measurement of this name."""
    if name == "direct":
        return direct(folder, seconds)
    if name == "unloaded":
        return live(folder, seconds, RATE)
    if name == "overload":
        return live(folder, seconds, OFFERED)
    return cameras(int(name.removeprefix("cameras-")), seconds)


def main() -> None:
    """Run all in turn and tell the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one, given.folder, given.seconds)))  # noqa: T201
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.benchmarks import workload

    workload.make_models(given.folder)
    names = ["direct", "unloaded", "overload", *(f"cameras-{count}" for count in CAMERAS)]
    rounds: list[dict[str, Any]] = [
        {name: _in_process(name, given) for name in names} for _ in range(given.rounds)
    ]
    text = table(rounds, names)
    print(text)  # noqa: T201
    if given.markdown:
        given.markdown.write_text(text + "\n")


def _in_process(name: str, given: argparse.Namespace) -> Any:
    command = [sys.executable, __file__, str(given.folder), "--one", name]
    command += ["--seconds", str(given.seconds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def table(rounds: list[dict[str, Any]], names: list[str]) -> str:
    """Markdown of the medians, and of the ratios within each round."""
    lines = ["| | p50 ms | p99 ms | CPU ms |", "| --- | --- | --- | --- |"]
    for name in names:
        cells = []
        for key in ("p50_ms", "p99_ms", "cpu_ms"):
            values = [each[name][key] for each in rounds if key in each[name]]
            cells.append(f"{statistics.median(values):.3g}" if values else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")

    def ratio(over: str, under: str, key: str) -> str:
        values = [each[over][key] / each[under][key] for each in rounds]
        return f"{statistics.median(values):.2f}"

    lines += ["", "| ratio, median of the rounds | |", "| --- | --- |"]
    lines.append(f"| unloaded p50 / direct p50 | {ratio('unloaded', 'direct', 'p50_ms')} |")
    lines.append(f"| overload p99 / unloaded p99 | {ratio('overload', 'unloaded', 'p99_ms')} |")
    for count in CAMERAS[1:]:
        cost = ratio(f"cameras-{count}", "cameras-1", "cpu_ms")
        lines.append(f"| CPU for a result, {count} cameras / 1 | {cost} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
