"""Four cameras on one engine, one of them lost all the time, for as long as one likes.

    python -m tests.lifetime.soak [SECONDS]

Prints one JSON object: what the process used, sampled often, and the figures of the run.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from typing import Any

from pipeline import Pipeline
from tests.servers import MjpegServer
from tests.usage import resident

SAMPLES = 60


def usage(pipeline: Pipeline) -> dict[str, int]:
    """Resident bytes, open descriptors, threads, and slots that nobody uses."""
    return {
        "resident": resident(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "results": pipeline.stats().results,
    }


async def soak(seconds: float, steady: str, restless: str) -> dict[str, Any]:
    """Run that long; ``restless`` is the URL of a camera that ends each of its streams."""
    again = {"initial_s": 0.05, "max_s": 0.1}
    config = {
        "cameras": {
            "synthetic": {"uri": "synthetic:", "width": 640, "height": 480, "fps": 30},
            "small": {"uri": "synthetic:", "width": 320, "height": 240, "fps": 30, "weight": 2},
            "steady": {"uri": steady, "max_fps": 10},
            "restless": {"uri": restless, "reconnect": again},
        },
        "model": {
            "engine": "simulated",
            "contexts": 2,
            "input_shape": [1, 320, 320, 3],
            "options": {"latency_ms": 5, "jitter_ms": 2, "distribution": "exponential"},
        },
        "ring": {"depth": 4},
    }
    samples = []
    async with Pipeline(config) as pipeline:
        running = asyncio.ensure_future(pipeline.wait())
        for _ in range(SAMPLES):
            await asyncio.wait({running}, timeout=seconds / SAMPLES)
            samples.append(usage(pipeline))
        await pipeline.drain()
        await running
    stats = pipeline.stats()
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(5)  # one that has just done its last work
    return {
        "samples": samples,
        "cameras": {
            name: {"state": c.state, "results": c.results, "reconnects": c.reconnects}
            for name, c in stats.cameras.items()
        },
        "frames": stats.frames,
        "results": stats.results,
        "dropped": stats.dropped,
        "allocations": stats.driver_allocations,
        "slots": stats.slots,
        "abandoned": [part.name for part in pipeline.abandoned],
        "threads_left": sorted(thread.name for thread in threading.enumerate()),
    }


def main() -> None:
    """Start the servers, run, print."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with MjpegServer() as steady, MjpegServer(fps=100, stop_after=20) as restless:
        told = asyncio.run(soak(seconds, steady.url, restless.url))
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
