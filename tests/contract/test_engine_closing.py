"""Every engine refuses work after it is closed, and gives all its memory and threads back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from pipeline import ClosedError, Executor
from tests.conftest import Until
from tests.contract.conformance import CONTEXTS, DEPTH, assert_same, compute, data, fill
from tests.contract.engines import EngineCase


@pytest.mark.both_loops
@pytest.mark.parametrize("what", ["ring", "executor"])
async def test_everything_is_refused_after_close(case: EngineCase, what: str) -> None:
    executor = await case.open(contexts=CONTEXTS)
    ring = await executor.ring(DEPTH)
    filling, leased = await ring.acquire(), await ring.acquire()
    await executor.run(leased)
    held = await ring.acquire()
    waiting = asyncio.ensure_future(ring.acquire())
    await asyncio.sleep(0)
    if what == "ring":
        await ring.close()
    else:
        assert await executor.close()
    await ring.close()  # once more is no error
    assert ring.closed
    with pytest.raises(ClosedError):
        await waiting
    with pytest.raises(ClosedError):
        await ring.acquire()
    for refused in (filling.submit, lambda: filling.inputs[0], lambda: leased.outputs[0]):
        with pytest.raises(ClosedError, match="its ring is closed"):
            refused()
    for slot in (filling, leased, held):
        slot.release()  # giving back is always right
    if what == "ring":
        async with executor.ring(1) as other:
            await compute(executor, other, data(executor, 18))
        assert await executor.close()
    assert await executor.close()
    with pytest.raises(ClosedError):
        await executor.ring(1)
    with pytest.raises(ClosedError):
        executor.allocate("input", 0)
    assert executor.counters().live_blocks == 0


async def test_a_view_outlives_the_executor(case: EngineCase, until: Until) -> None:
    executor = await case.open(contexts=1)
    ring = await executor.ring(2)
    wanted = await compute(executor, ring, data(executor, 19))
    slot = await ring.acquire()
    fill(slot, data(executor, 19))
    await executor.run(slot)
    views = list(slot.outputs)
    own = executor.allocate("input", 0)
    own[...] = 5
    slot.release()
    assert not await executor.close(timeout=30)  # tells at once that memory is still looked at
    assert_same(case, views, wanted)
    assert (own == 5).all()
    counters = executor.counters
    assert counters().live_blocks == len(executor.inputs) + len(executor.outputs) + 1
    del views, slot, own
    await until(lambda: counters().live_blocks == 0)
    assert counters().frees == counters().allocations
    assert counters().live_bytes == 0


async def test_memory_is_all_given_back_in_the_end(case: EngineCase) -> None:
    executor = await case.open(contexts=CONTEXTS)
    async with executor.ring(DEPTH) as ring:
        await compute(executor, ring, data(executor, 20))
        live = executor.counters()
        assert live.live_blocks == DEPTH * (len(executor.inputs) + len(executor.outputs))
        assert live.high_water_bytes >= live.live_bytes > 0
    assert await executor.close()
    counters = executor.counters()
    assert (counters.live_blocks, counters.live_bytes) == (0, 0)
    assert counters.frees == counters.allocations == live.allocations


async def test_a_second_ring_takes_the_memory_of_the_first(executor: Executor) -> None:
    async with executor.ring(DEPTH) as ring:
        await compute(executor, ring, data(executor, 21))
        before = executor.counters()
    async with executor.ring(DEPTH) as ring:
        await compute(executor, ring, data(executor, 21))
        after = executor.counters()
    assert after.live_blocks == before.live_blocks
    # What was bound once is of no use to another slot.
    assert (after.allocations == before.allocations) == executor.rebinds


async def test_rings_and_a_callers_memory_do_not_get_into_each_others_way(
    case: EngineCase, executor: Executor
) -> None:
    ones = data(executor, 22)
    kept = [executor.allocate("output", 0) for _ in range(2)]  # before there is any slot
    async with executor.ring(DEPTH) as ring:
        wanted = await compute(executor, ring, ones)
        kept.append(executor.allocate("input", 0))
    kept.append(executor.allocate("output", 0))
    kept.reverse()
    while kept:
        kept.pop()
        async with executor.ring(DEPTH + len(kept)) as ring:
            for _ in range(ring.depth):
                assert_same(case, await compute(executor, ring, ones), wanted)


async def test_openings_leave_no_thread_and_no_descriptor(
    case: EngineCase, until: Until, held_by_process: Callable[[], Counter[str]]
) -> None:
    async def once() -> None:
        async with case.open(contexts=CONTEXTS) as executor, executor.ring(DEPTH) as ring:
            await compute(executor, ring, data(executor, 25))
        assert executor.counters().live_blocks == 0

    for _ in range(2):  # libraries open what they keep without limit
        await once()
    before = held_by_process()
    for _ in range(case.openings):
        await once()
    # A thread that is done may not be gone yet.
    await until(lambda: not held_by_process() - before)
