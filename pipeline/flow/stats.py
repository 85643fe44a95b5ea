"""Counters and times of a running pipeline: frames, results, drops by cause, latencies."""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from pipeline.engines.autotune_choice import Choice
from pipeline.memory.results import Stamps

__all__ = [
    "KEPT",
    "STAGES",
    "CameraRecorder",
    "CameraStats",
    "Histogram",
    "Kind",
    "Percentiles",
    "RecentRate",
    "Recorder",
    "Stats",
]

_SUB_BITS = 6  # 64 steps for each power of two: a percentile is at most 1.6 % off
_BUCKETS = 64 << _SUB_BITS


class Percentiles(NamedTuple):
    """Milliseconds; nan while nothing was measured."""

    p50: float
    p99: float


_NOTHING = Percentiles(math.nan, math.nan)


class Histogram:
    """Durations in buckets that grow with them, so its size does not depend on their number.

    Recorded by one thread, read by any.
    """

    def __init__(self) -> None:
        self._buckets = array("q", bytes(8 * _BUCKETS))
        self._counts = np.frombuffer(self._buckets, np.int64)  # the same memory
        self._low, self._end = _BUCKETS, 0  # the others are empty
        self.count = 0

    def record(self, nanoseconds: int) -> None:
        """Add one duration; a negative one counts as 0."""
        value = max(0, nanoseconds)
        shift = max(0, value.bit_length() - _SUB_BITS - 1)
        index = (shift << _SUB_BITS) + (value >> shift)
        self._buckets[index] += 1
        self.count += 1
        if index < self._low:
            self._low = index
        if index >= self._end:
            self._end = index + 1

    @classmethod
    def merged(cls, parts: Iterable[Histogram]) -> Histogram:
        """All durations of several."""
        whole = cls()
        for part in parts:
            whole._add(part)
        whole.count = int(whole._counts.sum())
        return whole

    def add(self, other: Histogram) -> None:
        """Add the durations of another one."""
        self._add(other)
        self.count = int(self._counts.sum())

    def _add(self, other: Histogram) -> None:
        low, end = other._low, other._end
        if low < end:
            self._counts[low:end] += other._counts[low:end]
            self._low, self._end = min(self._low, low), max(self._end, end)

    def since(self, earlier: Histogram) -> Histogram:
        """Only the durations that came after ``earlier``, a copy made by ``merged``."""
        later = Histogram()
        later.add(self)
        later._counts -= earlier._counts
        later.count -= earlier.count
        return later

    def percentile(self, percent: float) -> float:
        """Nanoseconds that ``percent`` of the durations do not exceed; nan when there are none."""
        return self._percentiles(percent)[0]

    def milliseconds(self) -> Percentiles:
        """Median and 99th percentile."""
        p50, p99 = self._percentiles(50, 99)
        return Percentiles(p50 / 1e6, p99 / 1e6)

    def cumulative(self, bounds_s: Iterable[float]) -> tuple[list[tuple[str, float]], float]:
        """Prometheus' buckets (upper bound, how many do not exceed it) and the sum, seconds."""
        counts = self._counts.copy()
        seen = np.cumsum(counts)
        buckets = []
        for bound in bounds_s:
            index = int(np.searchsorted(_MIDDLES, bound * 1e9, side="right"))
            buckets.append((str(bound), float(seen[index - 1]) if index else 0.0))
        return [*buckets, ("+Inf", float(seen[-1]))], float(counts @ _MIDDLES) / 1e9

    def _percentiles(self, *percents: float) -> list[float]:
        low = self._low
        seen = self._counts[low : self._end].cumsum()
        count = int(seen[-1]) if len(seen) else 0
        if count == 0:
            return [math.nan for _ in percents]
        wanted = [max(1, math.ceil(count * percent / 100)) for percent in percents]
        return [float(_MIDDLES[low + index]) for index in seen.searchsorted(wanted)]


def _middle(index: int) -> float:
    shift = max(0, (index >> _SUB_BITS) - 1)
    low = (index - (shift << _SUB_BITS)) << shift
    return low + ((1 << shift) - 1) / 2


_MIDDLES = np.array([_middle(index) for index in range(_BUCKETS)])


class RecentRate:
    """Results a second over about the last two seconds."""

    _SLOT_NS = 250_000_000
    _SLOTS = 8  # finished ones, beside the one that is being filled

    def __init__(self) -> None:
        self._counts = [0] * (self._SLOTS + 1)
        self._slot = 0

    def record(self, now_ns: int) -> None:
        """Count a result of now."""
        self._move_to(now_ns // self._SLOT_NS)
        self._counts[self._slot % len(self._counts)] += 1

    def rate(self, now_ns: int, first_ns: int) -> float:
        """The rate at ``now_ns``; the first frame was begun at ``first_ns``."""
        slot = now_ns // self._SLOT_NS
        since = max(first_ns, (slot - self._SLOTS) * self._SLOT_NS)
        count = 0
        for age in range(len(self._counts)):
            if self._slot - age >= slot - self._SLOTS:
                count += self._counts[(self._slot - age) % len(self._counts)]
        return count * 1e9 / (now_ns - since) if now_ns > since else 0.0

    def _move_to(self, slot: int) -> None:
        for _ in range(min(max(0, slot - self._slot), len(self._counts))):
            self._slot += 1
            self._counts[self._slot % len(self._counts)] = 0
        self._slot = max(self._slot, slot)


KEPT = "the program keeps result.image of all frame buffers, so no frame can be read; keep .copy()"
Kind = Literal["camera", "engine", "sink"]
STAGES = ("capture", "preprocess", "infer", "postprocess")


@dataclass(frozen=True)
class CameraStats:
    """One camera: as in ``Stats``; ``state`` as in ``Event``, ``reconnects`` since the start.

    A camera that was removed has none any more; the totals still count what it did.
    """

    state: str
    frames: int
    results: int
    dropped: dict[str, int]
    reconnects: int
    fps: float
    latency_ms: Percentiles
    damaged: int = 0
    recent_fps: float = 0.0


@dataclass(frozen=True)
class Stats:
    """A snapshot. ``frames`` were captured; each became a result, was dropped or is on its way.

    ``dropped`` maps a cause to a number: ``latest`` and ``drop_newest`` (overflow of the
    source), ``stale`` (older than max_age_ms), ``rate`` (more than max_fps), ``no_buffer`` (all
    frame buffers were held by views), ``frozen`` (the very same frame for
    stale_after_s), ``failed`` and ``hung`` (the engine),
    ``cancelled``. Results that a sink or the program could not keep up with are in
    ``undelivered``, by receiver: they still count as results. ``driver_allocations`` are
    those when the ring was ready and now, ``notes`` what the engine says about itself.
    ``events`` counts the states that each camera, the engine and each sink came into; a camera
    that has the name of another part is ``camera NAME`` there. ``fps`` is the mean rate of
    results, ``recent_fps`` that of the last two seconds.
    ``damaged`` are frames that their decoder patched up or refused, whether they were handed
    out or not (``source.on_damage``). ``loop_lag_ms`` is how late the event loop was, looked at
    every 100 ms. ``chosen`` has what the settings that are ``auto`` became, if there was
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
    recent_fps: float = 0.0


@dataclass
class CameraRecorder:
    """Counters of one camera; only the event loop writes here, any thread reads.

    A frame is counted first as captured and then as what became of it; readers go the other
    way, so that they never see more results and drops than frames.
    """

    state: str = "connecting"
    frames: int = 0
    results: int = 0
    reconnects: int = 0
    damaged: int = 0
    kept: bool = False  # the program keeps all frame buffers
    dropped: Counter[str] = field(default_factory=Counter)
    latency: Histogram = field(default_factory=Histogram)
    stages: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram() for name in STAGES}
    )
    recent: RecentRate = field(default_factory=RecentRate)
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
        self.recent.record(stamps.postprocess_end)
        self.latency.record(stamps.latency_ns)
        self.stages["preprocess"].record(stamps.preprocess_end - stamps.preprocess_start)
        self.stages["infer"].record(stamps.infer_end - stamps.infer_start)
        self.stages["postprocess"].record(stamps.postprocess_end - stamps.postprocess_start)

    @property
    def settled(self) -> bool:
        """True once every frame has become a result or was dropped."""
        return self.frames <= self.results + sum(self.dropped.values())

    def snapshot(self, now_ns: int) -> CameraStats:
        """The figures at ``now_ns``."""
        results, dropped = self.results, dict(self.dropped)
        return CameraStats(
            self.state,
            self.frames,
            results,
            dropped,
            self.reconnects,
            _rate([self])[0],
            self.latency.milliseconds(),
            self.damaged,
            self.recent.rate(now_ns, self.first_ns),
        )

    def add(self, other: CameraRecorder) -> None:
        """Take over the figures of another one."""
        if other.results:
            first = min(self.first_ns, other.first_ns) if self.results else other.first_ns
            self.first_ns, self.last_ns = first, max(self.last_ns, other.last_ns)
        self.frames += other.frames
        self.results += other.results
        self.damaged += other.damaged
        self.dropped.update(other.dropped)
        self.latency.add(other.latency)
        for name, histogram in self.stages.items():
            histogram.add(other.stages[name])


class Recorder:
    """All cameras, and the receivers that could not keep up; ``now`` is the pipeline's clock.

    A camera that was removed is counted in the totals alone, once its last frame is out.
    """

    def __init__(self, now: Callable[[], int] = time.monotonic_ns) -> None:
        self.now = now
        self.cameras: dict[str, CameraRecorder] = {}
        self.undelivered: Counter[str] = Counter()
        self.loop_lag = Histogram()
        self._lock = threading.Lock()  # for what adds or removes a camera, and for who reads all
        self._leaving: list[CameraRecorder] = []
        self._gone = CameraRecorder()
        self._events: dict[tuple[Kind, str], Counter[str]] = {}
        self._states: dict[tuple[Kind, str], str] = {}
        self._lost_ns: dict[str, int] = {}  # when a receiver last missed a result

    def camera(self, name: str) -> CameraRecorder:
        """The recorder of a camera that is there or comes."""
        with self._lock:
            return self.cameras.setdefault(name, CameraRecorder())

    def forget(self, name: str) -> None:
        """Keep of a camera that was removed only what it adds to the totals."""
        with self._lock:
            self._leaving.append(self.cameras.pop(name))
            self._events.pop(("camera", name), None)
            self._states.pop(("camera", name), None)
            self._fold()

    def event(self, kind: Kind, source: str, state: str) -> None:
        """Count that a part came into this state."""
        with self._lock:
            if kind == "camera":
                if source not in self.cameras:
                    return
                self.cameras[source].state = state
            self._events.setdefault((kind, source), Counter())[state] += 1
            self._states[kind, source] = state

    def state(self, kind: Kind, source: str) -> str | None:
        """The state that a part came into last."""
        return self._states.get((kind, source))

    def lost(self, receiver: str) -> None:
        """A receiver took a result and may not have written it."""
        self.undelivered[receiver] += 1
        self._lost_ns[receiver] = self.now()

    def lost_within(self, receiver: str, seconds: float) -> bool:
        """True if a receiver missed a result in these last seconds."""
        last = self._lost_ns.get(receiver)
        return last is not None and self.now() - last < seconds * 1e9

    def totals(self) -> dict[str, Any]:
        """The fields of ``Stats`` that are sums over the cameras. For any thread."""
        with self._lock:
            self._fold()
            everybody = [*self.cameras.values(), *self._leaving, self._gone]
            events = self._events_by_name()
            now = self.now()
            shown = {name: camera.snapshot(now) for name, camera in self.cameras.items()}
            others = [camera.snapshot(now) for camera in everybody[len(shown) :]]
            fps, elapsed = _rate(everybody)
            latency = Histogram.merged(camera.latency for camera in everybody)
            stages = {
                name: Histogram.merged(camera.stages[name] for camera in everybody).milliseconds()
                for name in STAGES
            }
        parts = [*shown.values(), *others]
        dropped: Counter[str] = Counter()
        for part in parts:
            dropped.update(part.dropped)
        return {
            "frames": sum(part.frames for part in parts),
            "results": sum(part.results for part in parts),
            "dropped": dict(dropped),
            "damaged": sum(part.damaged for part in parts),
            "undelivered": dict(self.undelivered),
            "fps": fps,
            "recent_fps": sum(part.recent_fps for part in parts),
            "elapsed_s": elapsed,
            "latency_ms": latency.milliseconds(),
            "loop_lag_ms": self.loop_lag.milliseconds(),
            "stage_ms": stages,
            "cameras": shown,
            "events": events,
        }

    def events(self) -> dict[tuple[Kind, str], dict[str, int]]:
        """Number of times that each part came into each state. For any thread."""
        with self._lock:
            return {part: dict(states) for part, states in self._events.items()}

    def _events_by_name(self) -> dict[str, dict[str, int]]:
        others = {name for kind, name in self._events if kind != "camera"}
        return {
            f"camera {name}" if kind == "camera" and name in others else name: dict(states)
            for (kind, name), states in self._events.items()
        }

    def _fold(self) -> None:
        for camera in [each for each in self._leaving if each.settled]:
            self._leaving.remove(camera)
            self._gone.add(camera)


def _rate(cameras: list[CameraRecorder]) -> tuple[float, float]:
    """Results a second, and the seconds from the first frame to the last result."""
    working = [camera for camera in cameras if camera.results]
    if not working:
        return 0.0, 0.0
    first = min(camera.first_ns for camera in working)
    elapsed = max(0, max(camera.last_ns for camera in working) - first) / 1e9
    results = sum(camera.results for camera in working)
    return (results / elapsed if elapsed > 0 else 0.0), elapsed


for _public in (CameraStats, Percentiles, Stats):
    _public.__module__ = "pipeline"  # so that pickles survive moves
