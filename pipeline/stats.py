"""Counters and times of a running pipeline."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.results import Stamps

__all__ = ["Histogram", "Percentiles", "Recorder", "Stats"]

_SUB_BITS = 6  # 64 steps for each power of two: a percentile is at most 1.6 % off


class Percentiles(NamedTuple):
    """Milliseconds; nan while nothing was measured."""

    p50: float
    p99: float


class Histogram:
    """Durations in buckets that grow with them, so its size does not depend on their number."""

    def __init__(self) -> None:
        self._buckets = [0] * (64 << _SUB_BITS)
        self.count = 0

    def record(self, nanoseconds: int) -> None:
        """Add one duration; a negative one counts as 0."""
        value = max(0, nanoseconds)
        shift = max(0, value.bit_length() - _SUB_BITS - 1)
        self._buckets[(shift << _SUB_BITS) + (value >> shift)] += 1
        self.count += 1

    def percentile(self, percent: float) -> float:
        """Nanoseconds that ``percent`` of the durations do not exceed; nan when there are none."""
        if self.count == 0:
            return math.nan
        wanted = max(1, math.ceil(self.count * percent / 100))
        seen = 0
        for index, number in enumerate(self._buckets):
            seen += number
            if seen >= wanted:
                return _middle(index)
        raise AssertionError("the buckets hold fewer durations than were counted")

    def milliseconds(self) -> Percentiles:
        """Median and 99th percentile."""
        return Percentiles(self.percentile(50) / 1e6, self.percentile(99) / 1e6)


def _middle(index: int) -> float:
    shift = max(0, (index >> _SUB_BITS) - 1)
    low = (index - (shift << _SUB_BITS)) << shift
    return low + ((1 << shift) - 1) / 2


@dataclass(frozen=True)
class Stats:
    """A snapshot. ``frames`` were captured; each became a result, was dropped or is on its way.

    ``dropped`` maps a cause to a number: ``latest`` and ``drop_newest`` (overflow of the
    source), ``no_buffer`` (all frame buffers were held by views), ``cancelled``. Results that a
    sink or the program could not keep up with are in ``undelivered``, by receiver: they are
    results all the same. ``driver_allocations`` are those when the ring was ready and now,
    ``notes`` what the engine says about itself.
    """

    frames: int
    results: int
    dropped: dict[str, int]
    undelivered: dict[str, int]
    fps: float
    elapsed_s: float
    latency_ms: Percentiles
    stage_ms: dict[str, Percentiles]
    driver_allocations: tuple[int, int]
    zero_copy: dict[str, str]
    engine: str
    device: str
    depth: int
    slots: dict[str, int]
    error: str | None
    notes: dict[str, str] = field(default_factory=dict)


@dataclass
class Recorder:
    """Where the stages count; only the event loop writes here."""

    frames: int = 0
    results: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    undelivered: Counter[str] = field(default_factory=Counter)
    latency: Histogram = field(default_factory=Histogram)
    stages: dict[str, Histogram] = field(
        default_factory=lambda: {
            name: Histogram() for name in ("capture", "preprocess", "infer", "postprocess")
        }
    )
    first_ns: int = 0
    last_ns: int = 0

    def captured(self, began_ns: int) -> None:
        """A frame was taken from the source."""
        if self.frames == 0:
            self.first_ns = began_ns
        self.frames += 1

    def finished(self, stamps: Stamps) -> None:
        """A frame became a result."""
        self.results += 1
        self.last_ns = stamps.postprocess_end
        self.latency.record(stamps.latency_ns)
        self.stages["preprocess"].record(stamps.preprocess_end - stamps.preprocess_start)
        self.stages["infer"].record(stamps.infer_end - stamps.infer_start)
        self.stages["postprocess"].record(stamps.postprocess_end - stamps.postprocess_start)

    def lost(self, receiver: str) -> None:
        """A receiver took a result and may not have written it."""
        self.undelivered[receiver] += 1

    @property
    def elapsed_s(self) -> float:
        """From the first frame to the last result, seconds."""
        return max(0, self.last_ns - self.first_ns) / 1e9 if self.results else 0.0
