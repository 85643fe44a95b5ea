"""Counters and times: what a histogram of bounded size still knows."""

from __future__ import annotations

import gc
import math
import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.flow.stats import Histogram, Kind, RecentRate, Recorder
from pipeline.memory.results import Stamps


def test_nothing_measured_is_not_a_number() -> None:
    histogram = Histogram()
    assert math.isnan(histogram.percentile(50))
    assert all(math.isnan(value) for value in histogram.milliseconds())


@pytest.mark.parametrize("value", [0, 1, 63, 64, 127, 128, 1_000_000, 2**40 + 12345, 2**62])
def test_a_single_duration_is_every_percentile(value: int) -> None:
    histogram = Histogram()
    histogram.record(value)
    for percent in (0, 1, 50, 99, 100):
        assert histogram.percentile(percent) == pytest.approx(value, rel=1 / 64)
    if value < 128:  # small ones are exact
        assert histogram.percentile(50) == value


def test_a_clock_that_went_back_counts_as_no_time() -> None:
    histogram = Histogram()
    histogram.record(-5)
    assert histogram.count == 1
    assert histogram.percentile(50) == 0


def test_milliseconds() -> None:
    histogram = Histogram()
    for milliseconds in range(1, 101):
        histogram.record(milliseconds * 1_000_000)
    p50, p99 = histogram.milliseconds()
    assert p50 == pytest.approx(50, rel=1 / 64)
    assert p99 == pytest.approx(99, rel=1 / 64)


def test_what_came_since_a_copy_was_made() -> None:
    histogram = Histogram()
    histogram.record(5)
    before = Histogram.merged([histogram])
    histogram.record(100)
    histogram.record(100)
    later = histogram.since(before)
    assert (before.count, later.count, histogram.count) == (1, 2, 3)
    assert later.percentile(0) == later.percentile(100) == 100
    assert later.since(later).count == 0


@given(
    values=st.lists(st.integers(0, 2**50), min_size=1, max_size=200),
    percent=st.floats(0, 100),
)
def test_percentiles_are_those_of_the_sorted_list(values: list[int], percent: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    wanted = sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]
    assert histogram.count == len(values)
    assert histogram.percentile(percent) == pytest.approx(wanted, rel=1 / 64, abs=0.5)


def test_its_size_does_not_depend_on_the_number() -> None:
    histogram = Histogram()
    size = len(histogram._buckets)
    for value in np.random.default_rng(0).integers(0, 2**60, 5000).tolist():
        histogram.record(value)
    assert len(histogram._buckets) == size


def stamps(start: int) -> Stamps:
    return Stamps(*(start + offset for offset in (0, 10, 20, 100, 300, 1000, 5000, 6000, 6500)))


def test_the_recorder_tells_stages_apart() -> None:
    recorder = Recorder()
    camera = recorder.camera("front")
    camera.captured(50)
    camera.captured(60)
    camera.finished(stamps(100))
    camera.finished(stamps(1100))
    assert (camera.frames, camera.results) == (2, 2)
    wanted = {"preprocess": 200, "infer": 4000, "postprocess": 500}
    for name, value in wanted.items():
        assert camera.stages[name].count == 2
        assert camera.stages[name].percentile(50) == pytest.approx(value, rel=1 / 64)
    assert camera.stages["capture"].count == 0  # the capture stage counts for itself
    assert camera.latency.percentile(99) == pytest.approx(6500, rel=1 / 64)
    assert recorder.totals()["elapsed_s"] == pytest.approx((1100 + 6500 - 50) / 1e9)


def test_totals_are_those_of_all_cameras() -> None:
    recorder = Recorder()
    for name, first in (("front", 1000), ("rear", 500)):
        camera = recorder.camera(name)
        camera.captured(first)
        camera.finished(stamps(first + 10))
        camera.dropped["latest"] += 1
    recorder.camera("never").dropped["latest"] += 2
    recorder.lost("jsonl-0")
    totals = recorder.totals()
    assert (totals["frames"], totals["results"]) == (2, 2)
    assert totals["dropped"] == {"latest": 4}
    assert totals["undelivered"] == {"jsonl-0": 1}
    assert totals["elapsed_s"] == pytest.approx((1010 + 6500 - 500) / 1e9)
    assert totals["fps"] == pytest.approx(2 / totals["elapsed_s"])
    assert list(totals["cameras"]) == ["front", "rear", "never"]


def test_no_time_has_passed_before_the_first_result() -> None:
    recorder = Recorder()
    recorder.camera("front").captured(50)
    assert recorder.totals()["elapsed_s"] == 0
    assert recorder.totals()["fps"] == 0


def test_a_removed_camera_is_counted_in_the_totals_alone() -> None:
    recorder = Recorder()
    for name in ("front", "rear"):
        camera = recorder.camera(name)
        recorder.event("camera", name, "live")
        for _ in range(2):
            camera.captured(50)
        camera.finished(stamps(100))
        camera.dropped["latest"] += 1
    before = recorder.totals()
    recorder.forget("rear")
    after = recorder.totals()
    assert list(after.pop("cameras")) == ["front"]
    assert list(after.pop("events")) == ["front"]
    assert str(after) == str({key: before[key] for key in after})  # nan is not equal to itself
    recorder.event("camera", "rear", "ended")  # its last word comes late
    assert list(recorder.totals()["events"]) == ["front"]


def test_frames_of_a_removed_camera_that_come_late_are_counted() -> None:
    recorder = Recorder()
    camera = recorder.camera("front")
    camera.captured(50)
    camera.captured(60)
    recorder.forget("front")
    assert recorder.totals()["frames"] == 2
    camera.finished(stamps(100))
    camera.dropped["cancelled"] += 1
    totals = recorder.totals()
    assert (totals["frames"], totals["results"]) == (2, 1)
    assert totals["dropped"] == {"cancelled": 1}
    assert recorder.totals()["latency_ms"] == totals["latency_ms"]


def test_names_that_come_and_go_leave_nothing_behind() -> None:
    recorder = Recorder()
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(200):
            if number == 20:
                first = tracemalloc.get_traced_memory()[0]
            recorder.event("camera", f"front-{number}", "live")
            camera = recorder.camera(f"front-{number}")
            recorder.event("camera", f"front-{number}", "live")
            camera.captured(50)
            camera.finished(stamps(100))
            recorder.forget(f"front-{number}")
        assert tracemalloc.get_traced_memory()[0] - first < 65536  # one camera has more
    finally:
        tracemalloc.stop()
    assert recorder.totals()["results"] == 200


@pytest.mark.parametrize("name", ["engine", "jsonl-0"])
def test_a_camera_that_has_the_name_of_another_part_is_kept_apart(name: str) -> None:
    recorder = Recorder()
    recorder.camera(name)
    recorder.event("camera", name, "live")
    kind: Kind = "engine" if name == "engine" else "sink"
    recorder.event(kind, name, "failed")
    assert recorder.cameras[name].state == "live"
    assert recorder.state("camera", name) == "live"
    assert recorder.state(kind, name) == "failed"
    assert recorder.totals()["events"] == {f"camera {name}": {"live": 1}, name: {"failed": 1}}


def test_the_recent_rate_forgets_what_was_earlier() -> None:
    rate, second = RecentRate(), 1_000_000_000
    began = 100 * second
    for number in range(500):  # 5 s at 100 a second
        rate.record(began + number * second // 100)
    assert rate.rate(began + 5 * second, began) == pytest.approx(100, rel=0.02)
    assert rate.rate(began + 6 * second, began) == pytest.approx(50, rel=0.02)
    assert rate.rate(began + 9 * second, began) == 0
    rate.record(began + 1000 * second)
    assert rate.rate(began + 1000 * second, began) == pytest.approx(0.5, rel=0.15)


def test_the_recent_rate_of_the_first_second_is_that_of_the_time_so_far() -> None:
    rate, second = RecentRate(), 1_000_000_000
    for number in range(10):
        rate.record(7 * second + number * second // 20)
    assert rate.rate(7 * second + second // 2, 7 * second) == pytest.approx(20)
    assert RecentRate().rate(second, 0) == 0


def test_another_thread_sees_no_more_results_and_drops_than_frames() -> None:
    recorder = Recorder()
    ended = threading.Event()
    wrong: list[object] = []

    def look() -> None:
        while not ended.is_set():
            try:
                totals = recorder.totals()
            except Exception as error:
                wrong.append(error)
                return
            if totals["frames"] < totals["results"] + sum(totals["dropped"].values()):
                wrong.append(totals)

    watcher = threading.Thread(target=look)
    watcher.start()
    for number in range(200):
        camera = recorder.camera(f"front-{number}")
        for cause in ("latest", "rate", f"cause-{number}"):
            camera.captured(50)
            camera.dropped[cause] += 1
            camera.captured(50)
            recorder.event("camera", f"front-{number}", cause)
            camera.finished(stamps(100))
        if number % 3:
            recorder.forget(f"front-{number}")
    ended.set()
    watcher.join()
    assert wrong == []
    assert recorder.totals()["frames"] == 1200
