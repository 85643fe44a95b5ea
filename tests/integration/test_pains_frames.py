"""What users complain about with frames cannot happen: old, lost, frozen or missing ones."""

from __future__ import annotations

import asyncio
import statistics

import pytest

from pipeline import Pipeline
from tests.conftest import Until
from tests.integration.complaints import (
    HANG,
    all_accounted_for,
    camera,
    config,
    results,
    running,
    synthetic,
    times,
)
from tests.servers import MjpegServer, read_number
from tests.usage import resident, resources

pytestmark = pytest.mark.usefixtures("no_leak")


async def test_results_stay_fresh_though_frames_come_faster_than_the_engine_runs() -> None:
    """ultralytics 4211, 11784: frames pile up, results are minutes late."""
    ages = []
    settings = config(20, source=synthetic(fps=300, frames=450))
    async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
        async for result in pipe:
            ages.append(result.stamps.latency_ns / 1e9)
    assert len(ages) < 120
    # Piled up, the last ones would be older than a second.
    assert statistics.median(ages[-10:]) < 3 * statistics.median(ages[5:15]) < 1.0
    assert set(pipe.stats().dropped) == {"latest"}


async def test_every_lost_frame_is_counted_with_its_camera_and_cause() -> None:
    """ultralytics 14720: frames are lost over time, and nobody knows why."""
    fast = synthetic(fps=300, frames=90)
    cameras = {
        "often": {**fast, "max_fps": 30},
        "newest": {**fast, "overflow": "latest"},
        "oldest": {**fast, "overflow": "drop_newest"},
        "old": {**fast, "max_age_ms": 0.001},
    }
    model = {"options": {"fail_runs": [5, 9]}}
    taken = 0
    async with asyncio.timeout(HANG), Pipeline(config(10, model=model, cameras=cameras)) as pipe:
        async for _ in pipe:
            taken += 1
    stats = pipe.stats()
    for name, one in stats.cameras.items():
        assert one.frames == 90 == one.results + sum(one.dropped.values()), name
    causes = {"often": "rate", "newest": "latest", "oldest": "drop_newest", "old": "stale"}
    assert all(stats.cameras[name].dropped[cause] > 0 for name, cause in causes.items())
    assert stats.dropped["failed"] == 2
    assert stats.results == taken + stats.undelivered.get("program", 0)


async def test_a_frozen_image_is_noticed_and_its_camera_opened_again(until: Until) -> None:
    """ultralytics 10127: frozen frames go unnoticed."""
    with MjpegServer(fps=50, still=True) as server:
        async with running(config(source=camera(server, stale_after_s=0.3))) as pipe:
            await until(lambda: times(pipe, "camera", "stale") >= 2)
            assert times(pipe, "camera", "lost") >= 1
            server.tell(still=False)
            await until(lambda: times(pipe, "camera", "live") > times(pipe, "camera", "lost"))
            before = results(pipe, "camera")
            await until(lambda: results(pipe, "camera") > before + 25)
            assert pipe.health().ok
    assert pipe.stats().dropped["frozen"] >= 2
    assert all_accounted_for(pipe)


async def test_a_camera_lost_for_long_is_reopened_without_growing(until: Until) -> None:
    """ultralytics 6351, jetson-utils 148: it is never reopened, or each attempt leaks."""
    with MjpegServer() as server:
        async with running(config(source=camera(server))) as pipe:
            await until(lambda: results(pipe, "camera") > 0)
            server.kill()
            await until(lambda: times(pipe, "camera", "lost") >= 10)
            before, memory = resources(), resident()
            await until(lambda: times(pipe, "camera", "lost") >= 60)
            await until(lambda: not resources() - before)
            assert resident() - memory < 4_000_000
            server.restart()
            seen = results(pipe, "camera")
            await until(lambda: results(pipe, "camera") > seen + 5)
            assert pipe.stats().cameras["camera"].state == "live"


async def test_a_read_that_blocks_for_ever_is_left_behind_and_replaced(until: Until) -> None:
    """opencv 22677, 24393, opencv-python 788: read() blocks for 30 s or without limit."""
    with MjpegServer() as server:
        stuck = camera(server, open_timeout_s=0.3, read_timeout_s=0.3)
        cameras = {"stuck": stuck, "other": synthetic(fps=100)}
        async with running(config(cameras=cameras)) as pipe:
            await until(lambda: results(pipe, "stuck") > 0)
            server.freeze()  # connections stay, and nothing comes
            await until(lambda: times(pipe, "stuck", "lost") >= 2)
            seen = results(pipe, "other")
            await until(lambda: results(pipe, "other") > seen + 20)
            server.thaw()
            seen = results(pipe, "stuck")
            await until(lambda: results(pipe, "stuck") > seen + 5)


async def test_a_stream_loses_frames_only_where_that_was_chosen() -> None:
    """roboflow/inference 1160: a stream that is taken for live loses frames."""
    lost = {}
    for policy in ("block", "latest"):
        numbers: list[int | None] = []
        with MjpegServer(fps=100) as server:
            settings = config(15, source=camera(server, overflow=policy))
            async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
                async for result in pipe:
                    numbers.append(read_number(result.image))
                    if len(numbers) == 30:
                        break
        found = [number for number in numbers if number is not None]
        assert len(found) == 30
        lost[policy] = found[-1] - found[0] - 29
        assert pipe.stats().dropped.get("latest", 0) == 0 or policy == "latest"
    assert lost["block"] == 0 < lost["latest"]
