"""Time limit of runs, watched with one timer instead of one for each run."""

from __future__ import annotations

import asyncio

from pipeline.clock import Clock
from pipeline.errors import RunError
from pipeline.flow.deadline import STEP_S, STOPPED_S
from pipeline.flow.slot_filler import InFlight

__all__ = ["HungError", "RunWatch"]


class HungError(RunError):
    """A run took longer than it may."""


class RunWatch:
    """Fails the run that is waited for with HungError once it was submitted too long ago.

    Runs are waited for one after another. The timer is left running from one to the next, so
    most of the time ``begin`` and ``end`` do next to nothing. Time for which the process was
    stopped does not count.
    """

    def __init__(self, clock: Clock, limit_s: float) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._item: InFlight | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when the timer is to fire, by the loop's time
        self._resumed_ns = 0  # when the process went on after it was stopped

    def begin(self, item: InFlight) -> None:
        """Watch this one."""
        self._item = item
        if self._timer is None:
            self._look()

    def end(self) -> None:
        """Stop watching the run, which has ended."""
        self._item = None

    def stop(self) -> None:
        """Stop the timer; no further run is watched."""
        self._item = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None and loop.time() - self._due >= STOPPED_S:
            self._resumed_ns = self._clock.now()
        self._timer = None
        if self._item is None:
            return
        left = self._limit_s
        if self._item.submitted_ns:
            since = max(self._item.submitted_ns, self._resumed_ns)
            left -= (self._clock.now() - since) / 1e9
        if left <= 0:
            self._item.run.fail(HungError(f"a run took longer than {self._limit_s:g} s"))
        else:
            self._due = loop.time() + min(left, STEP_S)
            self._timer = loop.call_at(self._due, self._look)
