"""Engine rknn beside ztu_somemodelruntime_ez_rknn_async, both on the stand-in librknnrt.so.

    python tests/benchmarks/rknn_peer.py --library LIBRARY --peer-python PYTHON

PYTHON is that of an environment with the peer (tests/foreign/prepare.sh makes one), LIBRARY the
stand-in, built as a release. Our own side is the installed package. Runs alternate, each in a
process of its own, and the table has medians. Both sides get the same images as numpy arrays,
keep three cores busy by the asynchronous interface and hand out float32 in capture order; one pass
checks each result against numpy before the measured one. "ours int8" hands out the raw content.

Processor time is the process's own in the measured pass. The stand-in computes on the processor
what an NPU would, so that share ("stand-in") is taken off; "client" also leaves out the library's
copies of tensors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "native" / "tests" / "vendor" / "rknn"))

from make_model import PRESETS, Model
from standin import Standin

__all__ = ["main"]

IMAGES = 16
IN_FLIGHT = 6
WARM_UP = 64

Check = Callable[[int, list[Any]], None]


class Job:
    """What one side has to do: frames of a few images, and how it is measured."""

    def __init__(self, model: Model, path: str, library: str, frames: int) -> None:
        shape = model.inputs[0].shapes[0]
        rng = np.random.default_rng(0)
        images = [rng.integers(0, 256, shape, np.uint8) for _ in range(IMAGES)]
        self.rows = [np.ascontiguousarray(image.transpose(0, 2, 3, 1)) for image in images]
        self.raw = [model.run([image]) for image in images]
        self.real = [model.real(raw) for raw in self.raw]
        self.input_name = model.inputs[0].name
        self.path = path
        self.library = library
        self.frames = frames
        self.standin = Standin(library)

    def verify(self, number: int, outputs: list[Any]) -> None:
        """Raises AssertionError where a frame's outputs are not numpy's."""
        wanted_all = self.real if outputs[0].dtype == np.float32 else self.raw
        for got, wanted in zip(outputs, wanted_all[number % IMAGES], strict=True):
            np.testing.assert_array_equal(got, wanted)

    def look(self, number: int, outputs: list[Any]) -> None:
        """Next to nothing of a consumer."""
        for output in outputs:
            output.flat[number % IMAGES]

    def measured(self, one_pass: Callable[[int, Check], None]) -> dict[str, float]:
        """Costs for each frame of a pass, after one that checks the results."""
        one_pass(max(WARM_UP, IMAGES), self.verify)
        before = self.standin.stats()
        cpu, wall = time.process_time_ns(), time.monotonic_ns()
        one_pass(self.frames, self.look)
        cpu, wall = time.process_time_ns() - cpu, time.monotonic_ns() - wall
        after = self.standin.stats()
        counts = {name: after[name] - before[name] for name in before}
        if counts["misuse"]:
            raise RuntimeError(f"a rule was broken: {self.standin.last_misuse()}")
        host = cpu - counts["device_cpu_ns"]
        result = {name: counts[name] / self.frames for name in ("calls", "allocations", "copies")}
        result["copied KiB"] = counts["copied_bytes"] / self.frames / 1024
        result["conversions"] = counts["conversions"] / self.frames
        result["CPU us"] = host / self.frames / 1000
        result["client us"] = (host - counts["copy_cpu_ns"]) / self.frames / 1000
        result["stand-in us"] = counts["device_cpu_ns"] / self.frames / 1000
        result["frames/s"] = self.frames * 1e9 / wall
        return result


def run_peer(job: Job) -> dict[str, float]:
    """The peer's asynchronous path: callbacks in order, three contexts."""
    os.environ["ZTU_RKNPU2_RUNTIME_LIBRARY"] = job.library
    import ztu_somemodelruntime_ez_rknn_async as ez

    options = ez.make_provider_options(layout="nhwc", schedule=[0, 1, 2], max_queue_size=IN_FLIGHT)
    session = ez.InferenceSession(job.path, provider_options=[options])

    def one_pass(frames: int, check: Check) -> None:
        done = threading.Event()
        problems: list[str] = []

        def receive(outputs: list[Any], number: int, error: str | None) -> None:
            try:
                if error:
                    raise RuntimeError(error)
                check(number, outputs)
            except Exception as problem:
                problems.append(str(problem))
            if number == frames - 1:
                done.set()

        for number in range(frames):
            rows = job.rows[number % IMAGES]
            session.run_async(None, {job.input_name: rows}, receive, number)
        if not done.wait(120) or problems:
            raise RuntimeError(f"the peer failed: {problems[:1]}")

    return job.measured(one_pass)


def run_ours(job: Job, options: dict[str, Any]) -> dict[str, float]:
    """Our executor and its ring, with the loop that the runner uses."""
    import uvloop

    from pipeline import Executor

    async def frames_of(ring: Any, frames: int, check: Check) -> None:
        flying: deque[tuple[int, Any, asyncio.Future[Any]]] = deque()

        async def take() -> None:
            number, slot, run = flying.popleft()
            await run
            check(number, list(slot.outputs))
            slot.release()

        for number in range(frames):
            if len(flying) == IN_FLIGHT:
                await take()
            slot = await ring.acquire()
            np.copyto(slot.inputs[0], job.rows[number % IMAGES])
            flying.append((number, slot, slot.submit()))
        while flying:
            await take()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:

        async def opened() -> tuple[Any, Any]:
            executor = await Executor.open(
                job.path, engine="rknn", library=job.library, contexts="auto", options=options
            )
            return executor, await executor.ring(IN_FLIGHT)

        def run(step: Coroutine[Any, Any, Any]) -> Any:
            return runner.run(step)

        executor, ring = run(opened())
        result = job.measured(lambda frames, check: run(frames_of(ring, frames, check)))
        run(executor.close())
    return result


SIDES: dict[str, Callable[[Job], dict[str, float]]] = {
    "ours": lambda job: run_ours(job, {"mode": "zero_copy"}),
    "ours int8": lambda job: run_ours(job, {"mode": "zero_copy", "dequantize": False}),
    "ours general": lambda job: run_ours(job, {"mode": "general"}),
    "peer": run_peer,
}


def measure(side: str, chosen: argparse.Namespace, path: str, run_us: int) -> dict[str, float]:
    """One side in a process of its own."""
    python = chosen.peer_python if side == "peer" else sys.executable
    command = [python, __file__, "--side", side, "--model", path, "--library", chosen.library]
    command += ["--frames", str(chosen.frames), "--preset", chosen.preset]
    command += ["--size", str(chosen.size)]
    environment = {**os.environ, "STANDIN_RKNN_RUN_US": str(run_us)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{side}: {done.stderr.strip()}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(chosen: argparse.Namespace) -> None:
    """Measure all sides by turns and print their medians."""
    sides = [name for name in SIDES if name != "ours int8" or chosen.preset != "half"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.rknn"
        PRESETS[chosen.preset](chosen.size).save(path)
        for run_us in chosen.run_us:
            runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
            for _ in range(chosen.rounds):
                for side in sides:
                    runs[side].append(measure(side, chosen, str(path), run_us))
            show(run_us, chosen, runs)


def show(run_us: int, chosen: argparse.Namespace, runs: dict[str, list[dict[str, float]]]) -> None:
    """A Markdown table: medians for each frame."""
    names = list(runs["ours"][0])
    lines = [
        f"\nrun time {run_us} us, model {chosen.preset} of {chosen.size} pixels, "
        f"{chosen.frames} frames, median of {chosen.rounds}\n",
        "| side | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for side, results in runs.items():
        medians = [statistics.median(result[name] for result in results) for name in names]
        lines.append(f"| {side} | " + " | ".join(f"{value:.2f}" for value in medians) + " |")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Compare, or with --side measure one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--library", required=True, help="the stand-in librknnrt.so")
    parser.add_argument("--peer-python", help="Python of an environment with the peer")
    parser.add_argument("--frames", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--preset", choices=PRESETS, default="centerface")
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--run-us", type=int, nargs="+", default=[0, 2000])
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.library = str(Path(chosen.library).resolve())
    if chosen.side:
        model = PRESETS[chosen.preset](chosen.size)
        result = SIDES[chosen.side](Job(model, chosen.model, chosen.library, chosen.frames))
        json.dump(result, sys.stdout)
    elif chosen.peer_python:
        compare(chosen)
    else:
        parser.error("--peer-python is missing")


if __name__ == "__main__":
    main()
