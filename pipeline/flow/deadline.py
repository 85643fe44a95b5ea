"""Time limits that do not count the time for which the process was stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["STEP_S", "STOPPED_S", "Deadline"]

STEP_S = 1.0
STOPPED_S = 0.5  # a timer that is later than this means that the process did not run


class Deadline:
    """Calls ``expired`` once ``seconds`` have passed in which the event loop ran.

    After SIGSTOP, or when the machine slept, all timers are overdue, but whatever they watch had
    no time either. So time is counted in steps, and one that ended late is begun again.
    """

    __slots__ = ("_due", "_expired", "_left", "_loop", "_step", "_timer")

    def __init__(self, seconds: float, expired: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._expired = expired
        self._left = seconds
        self._begin()

    def cancel(self) -> None:
        """End it without a call."""
        self._timer.cancel()

    def _begin(self) -> None:
        self._step = min(self._left, STEP_S)
        self._due = self._loop.time() + self._step
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        if self._loop.time() - self._due < STOPPED_S:
            self._left -= self._step
        if self._left > 0:
            self._begin()
        else:
            self._expired()
