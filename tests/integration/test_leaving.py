"""Leaving ``async for``: who gets the rest, how long a result is valid, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import ClosedError, Pipeline, Result
from pipeline.clock import ManualClock
from tests.conftest import Until
from tests.integration.complaints import HANG, config, synthetic

pytestmark = [pytest.mark.usefixtures("no_leak")]


def to_file(path: Path, frames: int = 100, **query: float) -> Pipeline:
    """A pipeline whose results go to a file of JSON Lines, too."""
    sinks = [{"kind": "jsonl", "path": str(path)}]
    return Pipeline(config(0, source=synthetic(frames=frames, **query), sinks=sinks))


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


# Ways to leave a loop after some results.


class LeftError(Exception):
    pass


async def by_return(pipe: Pipeline) -> None:
    async for result in pipe:
        if result.sequence == 5:
            return


async def by_break(pipe: Pipeline) -> None:
    async for result in pipe:
        if result.sequence == 5:
            break


async def by_raise(pipe: Pipeline) -> None:
    with contextlib.suppress(LeftError):
        async for result in pipe:
            if result.sequence == 5:
                raise LeftError


async def by_timeout(pipe: Pipeline) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None) as limit:
            async for result in pipe:
                if result.sequence == 5:
                    limit.reschedule(asyncio.get_running_loop().time())
                    await asyncio.Event().wait()


async def by_aclose(pipe: Pipeline) -> None:
    results = aiter(pipe)
    while (await anext(results)).sequence < 5:
        pass
    await results.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(results)


@pytest.mark.parametrize("leave", [by_return, by_break, by_raise, by_timeout, by_aclose])
@pytest.mark.parametrize("then", ["wait", "drain"])
async def test_after_the_loop_the_sinks_get_all(
    leave: Callable[[Pipeline], Awaitable[None]], then: str, tmp_path: Path
) -> None:
    path = tmp_path / "out.jsonl"
    async with asyncio.timeout(HANG), to_file(path) as pipe:
        await leave(pipe)
        await (pipe.wait() if then == "wait" else pipe.drain())
    stats = pipe.stats()
    assert stats.frames == stats.results == lines(path)
    assert stats.dropped == {}
    assert stats.undelivered == {"program": stats.results - 6}
    assert then == "drain" or stats.results == 100


async def test_what_waits_is_for_the_next_loop() -> None:
    """Where nothing is dropped no result is lost between two loops."""
    seen = []
    async with asyncio.timeout(HANG), Pipeline(config(0, source=synthetic(frames=50))) as pipe:
        for last in (10, 20, 30, 49):
            async for result in pipe:
                seen.append(result.sequence)
                if result.sequence == last:
                    break
        assert [result async for result in pipe] == []
    assert seen == list(range(50))
    assert pipe.stats().undelivered == {}


async def test_a_camera_keeps_the_newest_for_the_next_loop(until: Until) -> None:
    async with asyncio.timeout(HANG), Pipeline(config(0, source=synthetic(fps=200))) as pipe:
        await by_break(pipe)
        await until(lambda: pipe.stats().results >= 30)
        result = await anext(aiter(pipe))
        assert result.sequence >= 25
        assert pipe.stats().undelivered["program"] >= 20


async def test_the_last_result_stays_valid_after_the_loop(until: Until) -> None:
    async with asyncio.timeout(HANG), Pipeline(config(0, source=synthetic(fps=200))) as pipe:
        async for each in pipe:
            result = each
            break
        await until(lambda: pipe.stats().results >= 10)
        assert result.image.shape == (48, 64, 3)
        await anext(aiter(pipe))
        with pytest.raises(ClosedError, match="given back"):
            _ = result.image


async def test_whoever_waits_does_not_wait_for_a_loop_that_was_left(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    async with asyncio.timeout(HANG), to_file(path) as pipe:
        async for result in pipe:
            if result.sequence == 1:
                waiting = asyncio.create_task(pipe.wait())
            if result.sequence == 5:
                break
        await waiting
    assert lines(path) == 100


async def test_an_iterator_may_be_collected_in_any_thread() -> None:
    async with asyncio.timeout(HANG), Pipeline(config(0, source=synthetic(frames=50))) as pipe:
        held: list[Any] = [aiter(pipe)]
        await anext(held[0])
        await asyncio.to_thread(held.clear)
        await pipe.wait()
    assert pipe.stats().results == 50


@pytest.mark.parametrize("what", ["wait", "drain"])
async def test_waiting_inside_the_loop_is_refused(what: str) -> None:
    seen = 0
    async with asyncio.timeout(HANG), Pipeline(config(0, source=synthetic(frames=20))) as pipe:
        async for _ in pipe:
            with pytest.raises(ClosedError, match=rf"{what}\(\).*use stop\(\) there"):
                await getattr(pipe, what)()
            seen += 1
    assert seen == 20


async def test_a_generator_around_the_loop_may_be_left_too() -> None:
    async def sequences(pipe: Pipeline) -> AsyncIterator[int]:
        async for result in pipe:
            yield result.sequence

    async with asyncio.timeout(HANG), Pipeline(config(0, source=synthetic(frames=50))) as pipe:
        async for number in sequences(pipe):
            if number == 3:
                break
        await pipe.wait()
    assert pipe.stats().results == 50


@pytest.mark.parametrize("how", ["stop", "drain", "cancel", "close"])
async def test_stopped_before_the_first_loop_there_are_no_results(how: str) -> None:
    async with asyncio.timeout(HANG), Pipeline(config(source=synthetic(frames=20))) as pipe:
        if (call := getattr(pipe, how)()) is not None:
            await call
        assert [result async for result in pipe] == []
    assert pipe.stats().frames == 0


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_stopped_before_it_is_open_it_takes_no_frame(how: str) -> None:
    pipe = Pipeline(config(source=synthetic(frames=20)))
    getattr(pipe, how)()
    async with asyncio.timeout(HANG), pipe:
        assert [result async for result in pipe] == []
        await pipe.wait()
    assert pipe.stats().frames == 0
    assert pipe.health() == (False, ("ended",))


async def test_a_loop_after_wait_is_refused() -> None:
    async with asyncio.timeout(HANG), Pipeline(config(source=synthetic(frames=5))) as pipe:
        await pipe.wait()
        with pytest.raises(ClosedError, match="before `wait`"):
            aiter(pipe)


def test_it_is_stopped_from_another_thread() -> None:
    pipe = Pipeline(config(source=synthetic(fps=100)))
    thread = threading.Thread(target=pipe.run)
    thread.start()
    pipe.stop()
    thread.join(HANG)
    assert not thread.is_alive()
    assert pipe.stats().dropped == {}


# What is borrowed.


async def test_a_result_may_be_released_early_once() -> None:
    async with asyncio.timeout(HANG), Pipeline(config(0, source=synthetic(frames=20))) as pipe:
        seen = 0
        async for result in pipe:
            result.release()
            with pytest.raises(ClosedError, match="given back"):
                _ = result.image
            with pytest.raises(ClosedError, match="more often"):
                result.release()
            seen += 1
    assert seen == 20
    assert pipe.stats().slots == {"free": pipe.stats().depth}


async def test_a_hold_belongs_to_its_holder() -> None:
    """A sink that releases too much takes nothing from the program."""

    class Greedy:
        needs_image = True
        refused = 0

        def write(self, result: Result) -> None:
            result.release()
            for _ in range(3):
                with contextlib.suppress(ClosedError):
                    result.release()
                    return
                self.refused += 1

    sink = Greedy()
    settings = config(0, source=synthetic(frames=20))
    async with asyncio.timeout(HANG), Pipeline(settings, sinks=[sink]) as pipe:
        async for result in pipe:
            assert result.image.shape == (48, 64, 3)
            assert result.outputs[0].array.size
    assert sink.refused == 60
    assert pipe.stats().undelivered == {}


async def test_a_kept_result_can_be_pickled() -> None:
    async with asyncio.timeout(HANG), Pipeline(config(0, source=synthetic(frames=1))) as pipe:
        (kept,) = [result.copy() async for result in pipe]
    again = pickle.loads(pickle.dumps(kept))
    assert (again.camera, again.stamps, again.mapping) == (kept.camera, kept.stamps, kept.mapping)
    np.testing.assert_array_equal(again.image, kept.image)
    np.testing.assert_array_equal(again.outputs[0].array, kept.outputs[0].array)
    for array in (again.image, again.outputs[0].array, again.detections.boxes):
        assert not array.flags.writeable


async def test_raw_outputs_can_be_placed_in_the_frame() -> None:
    """A frame of 64 x 48 fills the width of a square input and is centred in its height."""
    model = {"input_shape": [1, 320, 320, 3]}
    settings = config(0, source=synthetic(frames=1), model=model)
    async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
        async for result in pipe:
            corners = np.array([[0, 40], [320, 280], [160, 160]], np.float32)
            np.testing.assert_allclose(
                result.mapping.to_frame(corners), [[0, 0], [64, 48], [32, 24]]
            )
            assert result.frame_size == (64, 48)


async def test_all_stamps_are_of_one_clock() -> None:
    clock = ManualClock(1000)
    async with Pipeline(config(source=synthetic(frames=5)), clock=clock) as pipe:
        async for result in pipe:
            assert list(result.stamps) == sorted(result.stamps)
            assert result.stamps.captured >= 1000
            assert result.stamps.postprocess_end <= clock.now()
            clock.advance(1000)


async def test_a_closed_pipeline_frees_its_frame_buffers() -> None:
    async with Pipeline(config(0, source=synthetic(frames=5))) as pipe:
        async for result in pipe:
            kept = result
        assert pipe._parts is not None
        pools = [capture.pool for capture in pipe._parts.captures.values()]
    (pool,) = pools
    assert pool is not None
    assert pool.free == len(pool)
    assert pool.nbytes == 0
    with pytest.raises(ClosedError):
        _ = kept.image
