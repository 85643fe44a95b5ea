"""A second consumer is refused by name, and the first one does not notice."""

from __future__ import annotations

import asyncio

import pytest

from pipeline import ClosedError, Pipeline
from tests.integration.complaints import HANG, config, synthetic

pytestmark = [pytest.mark.usefixtures("no_leak")]


async def test_a_second_loop_is_refused() -> None:
    seen = []
    begun = asyncio.Event()

    async def first(pipe: Pipeline) -> None:
        async for result in pipe:
            begun.set()
            await asyncio.sleep(0)
            assert result.image.shape == (48, 64, 3)
            seen.append(result.sequence)

    async with asyncio.timeout(HANG), Pipeline(config(0, source=synthetic(frames=100))) as pipe:
        taking = asyncio.create_task(first(pipe), name="steering")
        await begun.wait()
        with pytest.raises(ClosedError, match="task 'steering' iterates already"):
            aiter(pipe)
        await taking
        assert [result async for result in pipe] == []  # now there may be another one
    assert seen == list(range(100))


async def test_two_tasks_may_not_wait_for_one_result() -> None:
    async with asyncio.timeout(HANG), Pipeline(config(source=synthetic(fps=20))) as pipe:
        results = aiter(pipe)

        async def take() -> int:
            return (await anext(results)).sequence

        first = asyncio.create_task(take(), name="steering")
        await asyncio.sleep(0)
        for call in (results.__anext__, results.aclose):
            with pytest.raises(ClosedError, match="task 'steering' waits for the next result"):
                await call()
        assert await first == 0
        assert (await anext(results)).sequence > 0


async def test_two_tasks_may_not_wait_for_one_event() -> None:
    async with asyncio.timeout(HANG), Pipeline(config(source=synthetic(frames=5))) as pipe:
        events, others = pipe.events(), pipe.events()

        async def states() -> list[str]:
            return [event.state async for event in events]

        first = asyncio.create_task(states(), name="log")
        await asyncio.sleep(0)
        with pytest.raises(ClosedError, match="task 'log' waits"):
            await anext(events)
        await pipe.wait()
        assert await first == [event.state async for event in others]


async def test_another_event_loop_is_refused() -> None:
    pipe = Pipeline(config(source=synthetic(fps=50)))
    await pipe.open()

    async def iterate() -> None:
        async for _ in pipe:
            raise AssertionError

    def used() -> None:
        for call in (iterate, pipe.wait, pipe.drain, pipe.close):
            with pytest.raises(RuntimeError, match=r"it belongs to <.*EventLoop.* not to <"):
                asyncio.run(call())

    await asyncio.to_thread(used)
    await pipe.close()
