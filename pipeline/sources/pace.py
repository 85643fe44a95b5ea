"""Due times of the frames of a source that plays by the clock."""

from __future__ import annotations

import threading
from fractions import Fraction

from pipeline.clock import Clock

__all__ = ["DEFAULT_FPS", "Pace", "sane_rate"]

DEFAULT_FPS = 30.0
_LEAST_FPS, _MOST_FPS = 0.001, 1000.0


def sane_rate(declared: float | Fraction | None) -> float | None:
    """Frames a second as declared; None where that is missing or cannot be meant."""
    if declared is None or not _LEAST_FPS <= declared <= _MOST_FPS:
        return None
    return float(declared)


class Pace:
    """Waits for each frame and returns when it was due.

    A frame is stamped with when it was due, not with when it was read, so a late reader shows
    as age of the frame. The first frame is due at once.
    """

    def __init__(self, clock: Clock, fps: float | None) -> None:
        self._clock = clock
        self.period = round(1e9 / (fps or DEFAULT_FPS))
        self._zero: int | None = None
        self._due = 0
        self._last_stamp: int | None = None

    def restart(self) -> None:
        """Begin new stamps: the next frame follows the last one by one period."""
        self._last_stamp = None

    def wait(self, stop: threading.Event, stamp: int | None = None) -> int | None:
        """Block until the frame is due and return that time; None once ``stop`` is set.

        ``stamp``: the frame's own time in ns since any start; without one, or when it does
        not move forward, frames follow one another by the period.
        """
        if self._zero is None:
            self._zero = self._due = self._clock.now()
        elif stamp is not None and self._last_stamp is not None and stamp > self._last_stamp:
            self._due += stamp - self._last_stamp
        else:
            self._due += self.period
        self._last_stamp = stamp
        return self._due if self._clock.wait_until(self._due, stop) else None
