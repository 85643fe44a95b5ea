"""What bench makes of its figures, and the readers that it measures with."""

from __future__ import annotations

import dataclasses
import json
import math
import threading
from typing import Any

import numpy as np
import pytest

from pipeline.bench.cpu_load import CpuLoad
from pipeline.bench.figures import (
    EngineFigures,
    InferFigures,
    Report,
    StageFigures,
    WholeFigures,
    middle,
    middle_of_parts,
)
from pipeline.bench.meter import Meter, repeat
from pipeline.bench.readers import Paced, Replay, as_file, has_own_pace, own_fps
from pipeline.bench.show import data, table
from pipeline.bench.verdict import verdict
from pipeline.clock import ManualClock
from pipeline.config.loading import parse
from pipeline.contracts import Reader
from pipeline.flow.stats import Percentiles
from pipeline.sources import SourceSettings
from pipeline.sources.synthetic import SyntheticReader, synthetic_frame

CONFIG = parse(
    {
        "source": {"uri": "synthetic:"},
        "model": {"engine": "simulated", "contexts": 2, "input_shape": [1, 48, 64, 3]},
        "postprocess": {"kind": "centerface"},
    }
)


def stage(ms: float, cpu_ms: float) -> StageFigures:
    return StageFigures(100, Percentiles(ms, 2 * ms), cpu_ms, 1e3 / ms)


def infer(contexts: int, fps: float, cpu_ms: float = 0.1) -> InferFigures:
    return InferFigures(100, Percentiles(20.0, 22.0), cpu_ms, fps, contexts)


WHOLE = WholeFigures(100, 90.0, 95.0, 1.5, Percentiles(21.0, 25.0), Percentiles(0.1, 1.0), {})


def report(**changes: Any) -> Report:
    """Two contexts of 20 ms each, on two cores that are hardly busy."""
    parts = EngineFigures(
        "simulated",
        "simulated NPU",
        1,
        changes.pop("preprocess", stage(0.2, 0.2)),
        changes.pop("infer", (infer(1, 50), infer(2, 100))),
        changes.pop("postprocess", stage(0.1, 0.1)),
    )
    whole = Report(
        "camera", (64, 48), 2, False, stage(0.9, 0.9), parts, WHOLE, 45.0, WHOLE, WHOLE, 0.0
    )
    return dataclasses.replace(whole, **changes)


@pytest.mark.parametrize(
    ("changes", "bottleneck", "limit", "reason", "advice"),
    [
        ({}, "infer", 100, "2 contexts make 100 runs a second, 20 ms", "model.contexts: 3"),
        ({"infer": (infer(1, 50), infer(2, 50.5))}, "infer", 50, "1 context makes", "contexts: 1"),
        ({"decode": stage(12.5, 1)}, "decode", 80, "decode takes 12.5 ms a frame", "GStreamer"),
        ({"preprocess": stage(20, 1)}, "preprocess", 50, "preprocess takes", "nearest"),
        ({"postprocess": stage(20, 1)}, "postprocess", 50, "postprocess takes", "threshold"),
        (
            {"infer": (infer(1, 300, 18.8),)},
            "cpu",
            100,
            "all 2 cores are busy: 20 ms of CPU a frame, 18.8 of them for infer",
            "int8",
        ),
        ({"decode": stage(1, 40), "cores": 1}, "cpu", 24.6, "the one core is busy", "fewer pixels"),
    ],
    ids=["infer", "contexts", "decode", "preprocess", "postprocess", "cpu", "cpu-decode"],
)
def test_the_least_bound_is_the_bottleneck(
    changes: dict[str, Any], bottleneck: str, limit: float, reason: str, advice: str
) -> None:
    judged = verdict(report(**changes), CONFIG)
    assert judged.bottleneck == bottleneck
    assert judged.limit_fps == pytest.approx(limit, rel=0.01)
    assert judged.limit_fps == min(judged.bounds_fps.values())
    assert judged.reached_ratio == pytest.approx(90 / judged.limit_fps)
    assert reason in judged.reason
    assert any(advice in line for line in judged.advice), judged.advice


def test_of_several_rounds_each_figure_is_the_median_one() -> None:
    assert middle([stage(3, 1), stage(1, 1), stage(2, 1)]) == stage(2, 1)
    assert middle([stage(1, 1), stage(2, 1)]) == stage(2, 1)
    rounds = [
        report(preprocess=stage(ms, 1), infer=(infer(1, 50 + ms), infer(2, 100 - ms))).parts
        for ms in (3, 1, 2)
    ]
    parts = middle_of_parts(rounds)
    assert parts.preprocess == stage(2, 1)
    assert [each.fps for each in parts.infer] == [52, 98]
    assert [each.contexts for each in parts.infer] == [1, 2]


def test_a_source_with_its_own_pace_is_no_bound() -> None:
    judged = verdict(report(decode=stage(33, 33), paced_by_source=True), CONFIG)
    assert set(judged.bounds_fps) == {"preprocess", "infer", "postprocess", "cpu"}
    assert judged.cpu_ms == pytest.approx(0.4)


def test_a_shallow_ring_is_told_where_the_whole_falls_behind() -> None:
    shallow = CONFIG.model_copy(update={"ring": CONFIG.ring.model_copy(update={"depth": 2})})
    slow = report(offline=dataclasses.replace(WHOLE, fps=60.0))
    assert verdict(slow, shallow).advice[0] == "ring.depth: 4"
    assert "ring.depth: 4" not in verdict(slow, CONFIG).advice
    assert "model.contexts: 3 and ring.depth: 6" in verdict(slow, shallow).advice[1]


def test_no_more_contexts_where_others_need_the_cores() -> None:
    advice = verdict(report(), CONFIG).advice
    assert any("model.contexts" in line for line in advice)
    advice = verdict(report(elsewhere_cores=2.0), CONFIG).advice
    assert not any("model.contexts" in line for line in advice)


def test_what_was_not_measured_is_null_and_a_dash() -> None:
    nothing = Percentiles(math.nan, math.nan)
    whole = dataclasses.replace(WHOLE, loop_lag_ms=nothing, latency_ms=nothing)
    made = report(live=whole, offline=whole, rate=None, elsewhere_cores=None)
    told = json.loads(json.dumps(data(made, verdict(made, CONFIG)), allow_nan=False))
    assert told["latency_ms"]["unloaded"] == {"p50": None, "p99": None}
    assert told["latency_ms"]["overload"] == {"p50": 21.0, "p99": 25.0}
    assert told["live"]["rate"] is told["elsewhere_cores"] is None
    assert "loop lag    p50 - ms, p99 - ms" in table(made, verdict(made, CONFIG))


def test_what_makes_the_figures_doubtful_is_told() -> None:
    assert "other processes" not in table(report(), verdict(report(), CONFIG))
    shared = report(elsewhere_cores=1.5)
    assert "kept 1.5 of the 2 cores busy" in table(shared, verdict(shared, CONFIG))
    fast = report(offline=dataclasses.replace(WHOLE, fps=120.0))
    assert "measure again" in data(fast, verdict(fast, CONFIG))["notes"][0]
    busy = CpuLoad().cores()
    assert busy is None or busy >= 0


def test_a_meter_measures_a_few_even_when_the_time_is_over() -> None:
    meter = Meter(0)
    assert not meter.enough
    for spent in (1_000_000, 2_000_000, 3_000_000):
        meter.record(spent)
    assert meter.enough
    figures = meter.stage()
    assert figures.count == 3
    assert figures.fps == pytest.approx(500)  # by the mean
    assert figures.ms.p50 == pytest.approx(2, rel=1 / 64)


def test_measuring_ends_with_the_frames_or_when_told() -> None:
    frames = iter([5, 6])
    figures = repeat(lambda: next(frames, None), 3600, threading.Event())
    assert figures is not None
    assert figures.count == 2
    stop = threading.Event()
    stop.set()
    assert repeat(lambda: 5, 3600, stop) is None


def test_a_source_becomes_a_file() -> None:
    camera = SourceSettings(uri="synthetic:?width=64&height=48&fps=25", realtime=True)
    assert own_fps(camera) == 25
    assert not has_own_pace(camera)
    made = as_file(camera)
    assert (made.uri, made.width, made.height, made.fps) == ("synthetic:", 64, 48, None)
    assert (made.realtime, made.loop) == (False, True)
    assert has_own_pace(SourceSettings(uri=0))
    assert has_own_pace(SourceSettings(uri="rtsp://nowhere/"))


def taken(reader: Reader, count: int) -> list[int]:
    """Stamps of some frames, whose frames come into a buffer."""
    found = reader.open()
    buffer = np.zeros((found.height, found.width, 3), np.uint8)
    stamps = []
    for _ in range(count):
        stamp = reader.grab()
        assert stamp is not None
        reader.retrieve(buffer)
        stamps.append(stamp)
    return stamps


class Leaping(ManualClock):
    """Nobody has to wait for it: it is there at once."""

    def wait_until(self, due: int, stop: threading.Event) -> bool:
        self.advance(max(0, due - self.now()))
        return not stop.is_set()


def test_frames_are_due_at_the_rate_and_a_late_one_is_left_out() -> None:
    clock = Leaping(1000)
    replay = Replay([synthetic_frame(0, 8, 6)], clock, fps=100)
    assert taken(replay, 3) == [10_000_000, 20_000_000, 30_000_000]
    clock.advance(25_000_000)  # held up for two and a half frames
    assert replay.grab() == 55_000_000
    assert replay.grab() == 65_000_000
    replay.interrupt()
    assert replay.grab() is None


def test_frames_from_memory_come_again_and_again() -> None:
    frames = [synthetic_frame(number, 8, 6) for number in range(2)]
    replay = Replay(frames, ManualClock())
    assert not replay.live
    replay.open()
    buffer = np.zeros((6, 8, 3), np.uint8)
    for number in range(5):
        assert replay.grab() == 0
        replay.retrieve(buffer)
        assert np.array_equal(buffer, frames[number % 2])


def test_another_readers_frames_come_at_the_rate() -> None:
    clock = Leaping()
    settings = SourceSettings(uri="synthetic:", width=8, height=6, frames=3)
    paced = Paced(SyntheticReader(settings, clock), clock, 50)
    assert paced.live
    assert taken(paced, 3) == [20_000_000, 40_000_000, 60_000_000]
    assert paced.grab() is None
    paced.close()
