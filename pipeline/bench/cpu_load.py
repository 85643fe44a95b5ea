"""CPU load of other processes during a measurement."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["CpuLoad"]

# Fields of /proc/stat that are work: user, nice, system, irq, softirq, steal.
_WORK = (1, 2, 3, 6, 7, 8)


class CpuLoad:
    """Counts from when it is made, on the cores that this process may use."""

    def __init__(self) -> None:
        self._before = self._times()

    def cores(self) -> float | None:
        """Average number of cores that other processes kept busy; None if unknown."""
        before, now = self._before, self._times()
        if before is None or now is None or now[0] <= before[0]:
            return None
        wall, busy, own = (b - a for a, b in zip(before, now, strict=True))
        return max(0.0, (busy - own) / wall)

    @staticmethod
    def _times() -> tuple[float, float, float] | None:
        """Seconds: of the clock, of work on these cores, and of this process's part in it."""
        ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        try:
            rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
            ticks = sum(int(row[i]) for row in rows if row and row[0] in ours for i in _WORK)
        except (OSError, ValueError, IndexError):
            return None
        return time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), time.process_time()
