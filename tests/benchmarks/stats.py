"""Time that ``pipeline.flow.stats()`` takes on the loop with many cameras.

python tests/benchmarks/stats.py [CAMERAS]
"""

from __future__ import annotations

import statistics
import sys
import time

from pipeline.flow.stats import Recorder
from pipeline.memory.results import Stamps


def main(cameras: int) -> None:
    """Print the median of 200 calls, in milliseconds."""
    recorder = Recorder()
    for name in range(cameras):
        camera = recorder.camera(str(name))
        for start in range(0, 200_000_000, 1_000_000):
            camera.captured(start)
            camera.finished(Stamps(*range(start, start + 9_000_000, 1_000_000)))
    took = []
    for _ in range(200):
        began = time.perf_counter()
        recorder.totals()
        took.append(time.perf_counter() - began)
    sys.stdout.write(f"{cameras} cameras: median {statistics.median(took) * 1e3:.2f} ms\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 64)
