"""A camera ten times faster than the engine: results stay as fresh as they were, memory flat."""

from __future__ import annotations

import json
import os
import subprocess
import sys

SECONDS = float(os.environ.get("OVERLOAD_SECONDS", "60"))

# In a process of its own, so that its memory is that of the pipeline alone.
PROGRAM = """
import asyncio, json, os, sys
from pipeline import Pipeline

async def run(fps, seconds):
    config = {
        "source": {"uri": "synthetic:", "width": 640, "height": 480, "fps": fps},
        "model": {"engine": "simulated", "contexts": 2, "input_shape": [1, 320, 320, 3],
                  "options": {"latency_ms": 40}},  # 50 a second
        "ring": {"depth": 4},
    }
    resident = []
    async with Pipeline(config) as pipeline:
        running = asyncio.ensure_future(pipeline.wait())
        for _ in range(20):
            await asyncio.wait({running}, timeout=seconds / 20)
            with open("/proc/self/statm") as statm:
                resident.append(int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        await pipeline.drain()
        await running
    stats = pipeline.stats()
    return {"frames": stats.frames, "results": stats.results, "dropped": stats.dropped,
            "p99": stats.latency_ms.p99, "growth": max(resident[-5:]) - max(resident[5:10])}

async def main(seconds):
    # Before and after: whatever else this machine does must not count.
    before = await run(25, min(10, seconds))
    overloaded = await run(500, seconds)
    after = await run(25, min(10, seconds))
    print(json.dumps([before, overloaded, after]))

asyncio.run(main(float(sys.argv[1])))
"""


def test_results_stay_fresh_when_the_camera_is_ten_times_too_fast() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(SECONDS)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS + 120,
        check=True,
    )
    before, overloaded, after = json.loads(ended.stdout)
    assert overloaded["frames"] > 8 * overloaded["results"] > 8 * 30 * SECONDS
    assert set(overloaded["dropped"]) == {"latest"}
    assert overloaded["frames"] == overloaded["results"] + overloaded["dropped"]["latest"]
    assert overloaded["p99"] < 3 * max(before["p99"], after["p99"])
    assert overloaded["growth"] < 3_000_000
