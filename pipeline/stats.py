"""Counters and times of a running pipeline."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipeline.choice import Choice
from pipeline.results import Stamps

__all__ = [
    "STAGES",
    "CameraRecorder",
    "CameraStats",
    "Histogram",
    "Percentiles",
    "Recorder",
    "Stats",
]

_SUB_BITS = 6  # 64 steps for each power of two: a percentile is at most 1.6 % off


class Percentiles(NamedTuple):
    """Milliseconds; nan while nothing was measured."""

    p50: float
    p99: float


_NOTHING = Percentiles(math.nan, math.nan)


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

    @classmethod
    def merged(cls, parts: Iterable[Histogram]) -> Histogram:
        """All durations of several."""
        whole = cls()
        for part in parts:
            whole.count += part.count
            whole._buckets = [a + b for a, b in zip(whole._buckets, part._buckets, strict=True)]
        return whole

    def since(self, earlier: Histogram) -> Histogram:
        """Only the durations that came after ``earlier``, a copy made by ``merged``."""
        later = Histogram()
        later.count = self.count - earlier.count
        pairs = zip(self._buckets, earlier._buckets, strict=True)
        later._buckets = [now - then for now, then in pairs]
        return later

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

    def cumulative(self, bounds_s: Iterable[float]) -> tuple[list[tuple[str, float]], float]:
        """Prometheus' buckets (upper bound, how many do not exceed it) and the sum, seconds."""
        bounds = list(bounds_s)
        below = [0] * len(bounds)
        total = 0.0
        for index, number in enumerate(self._buckets):
            if not number:
                continue
            seconds = _middle(index) / 1e9
            total += number * seconds
            for place, bound in enumerate(bounds):
                below[place] += number if seconds <= bound else 0
        buckets = [(str(bound), float(count)) for bound, count in zip(bounds, below, strict=True)]
        return [*buckets, ("+Inf", float(self.count))], total

    def milliseconds(self) -> Percentiles:
        """Median and 99th percentile."""
        return Percentiles(self.percentile(50) / 1e6, self.percentile(99) / 1e6)


def _middle(index: int) -> float:
    shift = max(0, (index >> _SUB_BITS) - 1)
    low = (index - (shift << _SUB_BITS)) << shift
    return low + ((1 << shift) - 1) / 2


STAGES = ("capture", "preprocess", "infer", "postprocess")


@dataclass(frozen=True)
class CameraStats:
    """One camera: as in ``Stats``; ``state`` as in ``Event``, ``reconnects`` since the start."""

    state: str
    frames: int
    results: int
    dropped: dict[str, int]
    reconnects: int
    fps: float
    latency_ms: Percentiles
    damaged: int = 0


@dataclass(frozen=True)
class Stats:
    """A snapshot. ``frames`` were captured; each became a result, was dropped or is on its way.

    ``dropped`` maps a cause to a number: ``latest`` and ``drop_newest`` (overflow of the
    source), ``stale`` (older than max_age_ms), ``rate`` (more than max_fps), ``no_buffer`` (all
    frame buffers were held by views), ``frozen`` (the very same picture for
    stale_after_s), ``failed`` and ``hung`` (the engine),
    ``cancelled``. Results that a sink or the program could not keep up with are in
    ``undelivered``, by receiver: they are results all the same. ``driver_allocations`` are
    those when the ring was ready and now, ``notes`` what the engine says about itself.
    ``events`` counts the states that each camera, the engine and each sink came into.
    ``damaged`` are pictures that their decoder patched up or refused, whether they were handed
    out or not (``source.on_damage``). ``loop_lag_ms`` is how late the event loop was, looked at
    every 100 ms. ``chosen`` tells what the settings that are ``auto`` became, if there was
    something to measure.
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
    driver_bytes: int
    zero_copy: dict[str, str]
    engine: str
    device: str
    engine_reopened: int
    depth: int
    slots: dict[str, int]
    cameras: dict[str, CameraStats]
    events: dict[str, dict[str, int]]
    error: str | None
    notes: dict[str, str] = field(default_factory=dict)
    loop_lag_ms: Percentiles = _NOTHING
    chosen: Choice | None = None
    damaged: int = 0


@dataclass
class CameraRecorder:
    """Where the stages count for one camera; only the event loop writes here."""

    state: str = "connecting"
    frames: int = 0
    results: int = 0
    reconnects: int = 0
    damaged: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    latency: Histogram = field(default_factory=Histogram)
    stages: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram() for name in STAGES}
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

    def snapshot(self) -> CameraStats:
        """The figures now."""
        return CameraStats(
            self.state,
            self.frames,
            self.results,
            dict(self.dropped),
            self.reconnects,
            _rate([self])[0],
            self.latency.milliseconds(),
            self.damaged,
        )


@dataclass
class Recorder:
    """All cameras, and the receivers that could not keep up."""

    cameras: dict[str, CameraRecorder] = field(default_factory=dict)
    undelivered: Counter[str] = field(default_factory=Counter)
    events: dict[str, Counter[str]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)  # the last one of each
    lost_s: dict[str, float] = field(default_factory=dict)  # when a receiver last missed a result
    loop_lag: Histogram = field(default_factory=Histogram)

    def camera(self, name: str) -> CameraRecorder:
        """The recorder of a camera; one that was removed and added again goes on counting."""
        # Asked for with each frame that is dropped, so none is made to be thrown away.
        if name not in self.cameras:
            self.cameras[name] = CameraRecorder()
        return self.cameras[name]

    def event(self, source: str, state: str) -> None:
        """A camera, the engine or a sink came into this state."""
        self.events.setdefault(source, Counter())[state] += 1
        self.states[source] = state
        if source in self.cameras:
            self.cameras[source].state = state

    def lost(self, receiver: str) -> None:
        """A receiver took a result and may not have written it."""
        self.undelivered[receiver] += 1
        self.lost_s[receiver] = time.monotonic()

    def totals(self) -> dict[str, Any]:
        """The fields of ``Stats`` that are sums over the cameras."""
        cameras = list(self.cameras.values())
        fps, elapsed = _rate(cameras)
        return {
            "frames": sum(camera.frames for camera in cameras),
            "results": sum(camera.results for camera in cameras),
            "dropped": dict(sum((camera.dropped for camera in cameras), Counter())),
            "damaged": sum(camera.damaged for camera in cameras),
            "undelivered": dict(self.undelivered),
            "fps": fps,
            "elapsed_s": elapsed,
            "latency_ms": Histogram.merged(c.latency for c in cameras).milliseconds(),
            "loop_lag_ms": self.loop_lag.milliseconds(),
            "stage_ms": {
                name: Histogram.merged(c.stages[name] for c in cameras).milliseconds()
                for name in STAGES
            },
            "cameras": {name: camera.snapshot() for name, camera in self.cameras.items()},
            "events": {source: dict(states) for source, states in self.events.items()},
        }


def _rate(cameras: list[CameraRecorder]) -> tuple[float, float]:
    """Results a second, and the seconds from the first frame to the last result."""
    working = [camera for camera in cameras if camera.results]
    if not working:
        return 0.0, 0.0
    first = min(camera.first_ns for camera in working)
    elapsed = max(0, max(camera.last_ns for camera in working) - first) / 1e9
    results = sum(camera.results for camera in working)
    return (results / elapsed if elapsed > 0 else 0.0), elapsed
