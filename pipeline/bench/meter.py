"""Durations, and the CPU and wall time around them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pipeline.bench.figures import StageFigures
from pipeline.clock import Clock, MonotonicClock
from pipeline.errors import Abandoned
from pipeline.flow.stats import Histogram
from pipeline.worker import Worker

__all__ = ["Conditions", "Meter", "on_thread", "repeat"]

T = TypeVar("T")

# Even where one frame takes longer than the time that is given.
_LEAST = 3


@dataclass(frozen=True)
class Conditions:
    """Conditions of a measurement: duration, clock, and a callback that names each step.

    ``abandoned`` collects the parts that hang.
    """

    seconds: float
    report: Callable[[str], None]
    clock: Clock = field(default_factory=MonotonicClock)
    abandoned: list[Abandoned] = field(default_factory=list)


class Meter:
    """Counts from when it is made. CPU time is that of all threads of the process."""

    def __init__(self, seconds: float) -> None:
        self.histogram = Histogram()
        self.total_ns = 0
        self._cpu = time.process_time_ns()
        self._began = time.monotonic_ns()
        self._due = self._began + round(seconds * 1e9)

    @property
    def count(self) -> int:
        """Number of recorded durations."""
        return self.histogram.count

    @property
    def enough(self) -> bool:
        """True if the time is over and something was measured."""
        return self.count >= _LEAST and time.monotonic_ns() >= self._due

    @property
    def cpu_ns(self) -> int:
        """CPU time since it was made."""
        return time.process_time_ns() - self._cpu

    @property
    def wall_ns(self) -> int:
        """Time since it was made."""
        return time.monotonic_ns() - self._began

    def record(self, nanoseconds: int) -> None:
        """Record one duration."""
        self.histogram.record(nanoseconds)
        self.total_ns += nanoseconds

    def stage(self) -> StageFigures:
        """Figures of frames that came one after another; their rate is by their own time."""
        cpu_ms = self.cpu_ns / 1e6 / max(1, self.count)
        fps = self.count / max(1, self.total_ns) * 1e9
        return StageFigures(self.count, self.histogram.milliseconds(), cpu_ms, fps)


def repeat(
    step: Callable[[], int | None], seconds: float, stop: threading.Event
) -> StageFigures | None:
    """Call ``step``, which returns the ns that its frame took, for ``seconds``.

    It may end earlier by returning None; the figures are None when there was no frame at all.
    """
    meter = Meter(seconds)
    while not (meter.enough or stop.is_set()):
        spent = step()
        if spent is None:
            break
        meter.record(spent)
    return meter.stage() if meter.count else None


async def on_thread(
    part: Abandoned,
    job: Callable[[], T],
    give_up: Callable[[], object],
    abandoned: list[Abandoned],
    timeout: float | None = None,
) -> T:
    """Run ``job`` on a thread of its own; TimeoutError after ``timeout`` s.

    Then, and when cancelled, ``give_up`` is called to make it end; when it does not within a
    second ``part`` is added to ``abandoned``.
    """
    worker = Worker(part.name)
    future = worker.submit(job)
    future.add_done_callback(_look_at)
    try:
        done, _ = await asyncio.wait({future}, timeout=timeout)
        if not done:
            raise TimeoutError
        return future.result()
    finally:
        give_up()
        if not await worker.close(1.0):
            abandoned.append(part)


def _look_at(future: asyncio.Future[T]) -> None:
    """Retrieve the exception of an abandoned call, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
