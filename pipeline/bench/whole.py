"""The whole pipeline for a while, without sinks: what comes out of it, and how old it is."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import NamedTuple

from pipeline.bench.figures import WholeFigures
from pipeline.bench.meter import Conditions
from pipeline.config.settings import Config
from pipeline.contracts import Reader
from pipeline.errors import PipelineError
from pipeline.flow.stats import CameraRecorder, Histogram, Recorder
from pipeline.machine.runner import Runner

__all__ = ["whole"]

_LEAST = 3  # results, even where they take longer than the time that is given
_PATIENCE_S = 10.0
_GLANCE_S = 0.05


async def whole(
    config: Config, reader: Reader | None, conditions: Conditions, *, live: bool = False
) -> WholeFigures:
    """Run the pipeline, warm it up, and measure; frames of ``reader``, or of the configuration.

    Raises what running a pipeline raises.
    """
    runner = Runner(config, frames=reader, live=live, clock=conditions.clock)
    running: asyncio.Task[None] | None = None
    try:
        await runner.open()
        running = asyncio.create_task(runner.wait())
        patience = config.model.run_timeout_s + _PATIENCE_S
        await _until(runner, running, min(0.5, conditions.seconds / 4), patience)
        before = _snapshot(runner.recorder)
        await _until(runner, running, conditions.seconds, patience)
        after = _snapshot(runner.recorder)
        if not running.done():
            await runner.drain()
        await running
        return _between(before, after)
    finally:
        await runner.close()
        conditions.abandoned.extend(runner.abandoned)
        if running is not None:
            await asyncio.wait({running})
            if not running.cancelled():
                running.exception()  # the first error is on its way already


async def _until(
    runner: Runner, running: asyncio.Task[None], seconds: float, patience: float
) -> None:
    """Wait so long, and for some results; PipelineError when none come for ``patience`` s more."""
    recorder = runner.recorder
    first = _results(recorder)
    began = time.monotonic()
    pause = seconds
    while not running.done():
        await asyncio.wait({running}, timeout=pause)
        waited = time.monotonic() - began
        if waited >= seconds and _results(recorder) - first >= _LEAST:
            return
        if waited >= seconds + patience:
            if _results(recorder) == first:
                raise PipelineError(f"no result came within {waited:.0f} s")
            return
        pause = max(_GLANCE_S, seconds - waited)


def _results(recorder: Recorder) -> int:
    return sum(camera.results for camera in recorder.cameras.values())


class _Snapshot(NamedTuple):
    wall_ns: int
    cpu_ns: int
    frames: int
    results: int
    dropped: Counter[str]
    latency: Histogram
    lag: Histogram


def _snapshot(recorder: Recorder) -> _Snapshot:
    (camera,) = recorder.cameras.values() or [CameraRecorder()]
    return _Snapshot(
        time.monotonic_ns(),
        time.process_time_ns(),
        camera.frames,
        camera.results,
        Counter(camera.dropped),
        Histogram.merged([camera.latency]),
        Histogram.merged([recorder.loop_lag]),
    )


def _between(before: _Snapshot, after: _Snapshot) -> WholeFigures:
    results = after.results - before.results
    if not results:
        raise PipelineError("it ended before a result could be measured")
    seconds = max(1, after.wall_ns - before.wall_ns) / 1e9
    return WholeFigures(
        results,
        results / seconds,
        (after.frames - before.frames) / seconds,
        (after.cpu_ns - before.cpu_ns) / 1e6 / results,
        after.latency.since(before.latency).milliseconds(),
        after.lag.since(before.lag).milliseconds(),
        dict(after.dropped - before.dropped),
    )
