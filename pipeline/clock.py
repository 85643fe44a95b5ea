"""Time as integer nanoseconds from one clock."""

from __future__ import annotations

import threading
import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "MonotonicClock"]


class Clock(Protocol):
    """Source of the time for every part."""

    def now(self) -> int:
        """Current time in nanoseconds; only differences mean something."""

    def wait_until(self, due: int, stop: threading.Event) -> bool:
        """Block until ``due``; False as soon as ``stop`` is set."""


class MonotonicClock:
    """The machine's monotonic clock (``time.monotonic_ns``)."""

    def now(self) -> int:
        """Current time in nanoseconds; only differences mean something."""
        return time.monotonic_ns()

    def wait_until(self, due: int, stop: threading.Event) -> bool:
        """Block until ``due``; False as soon as ``stop`` is set."""
        while (left := due - self.now()) > 0:
            if stop.wait(left / 1e9):
                return False
        return not stop.is_set()


class ManualClock:
    """A clock for tests: only ``advance`` moves the time."""

    def __init__(self, start: int = 0) -> None:
        self._now = start
        self._moved = threading.Condition()

    def now(self) -> int:
        """Current time in nanoseconds; only differences mean something."""
        return self._now

    def advance(self, nanoseconds: int) -> None:
        """Move time forward and wake the threads that wait for it."""
        with self._moved:
            self._now += nanoseconds
            self._moved.notify_all()

    def wait_until(self, due: int, stop: threading.Event) -> bool:
        """Block until ``due`` has been reached by ``advance``; False once ``stop`` is set."""
        with self._moved:
            while self._now < due and not stop.is_set():
                self._moved.wait(0.01)  # stop has no way to notify this condition
        return not stop.is_set()


ManualClock.__module__ = "pipeline"  # so that pickles survive moves
