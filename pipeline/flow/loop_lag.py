"""Lag of the event loop: the time that a hand-over between stages waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from pipeline.flow.stats import Histogram

__all__ = ["LoopLag"]

_PERIOD_S = 0.1


class _Loop(Protocol):
    def call_later(self, delay: float, callback: Callable[[], object]) -> Any: ...


class LoopLag:
    """A timer every 100 ms that records by how much it was late, while it is started.

    Ten calls a second cost nothing that could be measured. Timers of asyncio and uvloop are
    about a millisecond coarse, so less than that means nothing. ``now`` returns nanoseconds.
    """

    def __init__(
        self, loop: _Loop, histogram: Histogram, now: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._loop = loop
        self._histogram = histogram
        self._now = now
        self._due = 0
        self._timer: Any = None

    def start(self) -> None:
        """Begin to measure."""
        self._due = self._now() + round(_PERIOD_S * 1e9)
        self._timer = self._loop.call_later(_PERIOD_S, self._tick)

    def stop(self) -> None:
        """End it; what was recorded stays."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._histogram.record(self._now() - self._due)
        self.start()
