"""The lag of the event loop, on a loop and a clock that move when told."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest

from pipeline import Pipeline
from pipeline.flow.loop_lag import LoopLag
from pipeline.flow.stats import Histogram

CONFIG = {
    "source": {"uri": "synthetic:", "width": 64, "height": 48},
    "model": {"engine": "simulated", "input_shape": [1, 48, 64, 3], "options": {"latency_ms": 2}},
}


class ManualLoop:
    """One timer, which fires when told."""

    def __init__(self) -> None:
        self.now = 5_000_000_000
        self.due = 0
        self.callback: Callable[[], object] | None = None

    def call_later(self, delay: float, callback: Callable[[], object]) -> ManualLoop:
        self.due = self.now + round(delay * 1e9)
        self.callback = callback
        return self

    def cancel(self) -> None:
        self.callback = None

    def fire(self, late_ns: int) -> None:
        assert self.callback is not None
        self.now = self.due + late_ns
        self.callback()


def test_it_records_how_late_each_timer_is() -> None:
    loop, histogram = ManualLoop(), Histogram()
    lag = LoopLag(loop, histogram, lambda: loop.now)
    lag.start()
    assert loop.due - loop.now == 100_000_000
    for late in (0, 0, 40_000_000):
        loop.fire(late)
    assert histogram.count == 3
    assert histogram.percentile(50) == 0
    assert histogram.percentile(99) == pytest.approx(40_000_000, rel=1 / 64)
    loop.fire(-1_000_000)  # timers are coarse, and none is late by less than nothing
    assert histogram.percentile(1) == 0


def test_nothing_is_measured_after_the_end() -> None:
    loop, histogram = ManualLoop(), Histogram()
    lag = LoopLag(loop, histogram, lambda: loop.now)
    lag.stop()
    lag.start()
    lag.stop()
    assert loop.callback is None
    assert histogram.count == 0


@pytest.mark.both_loops
async def test_a_program_that_keeps_the_loop_shows(no_leak: None) -> None:
    async with Pipeline(CONFIG) as pipeline:
        assert math.isnan(pipeline.stats().loop_lag_ms.p99)
        async for _ in pipeline:
            # The timer is due within 100 ms and cannot fire while the loop is kept.
            time.sleep(0.3)  # noqa: ASYNC251 - which is the point
            if pipeline.stats().loop_lag_ms.p99 >= 190:
                pipeline.stop()
    assert pipeline.stats().loop_lag_ms.p99 >= 190
