"""A cancelled run of any engine keeps its memory until the engine lets go, and disturbs none."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from pipeline import Executor, Ring, Slot
from tests.conftest import Until
from tests.contract.conformance import (
    CONTEXTS,
    DEPTH,
    Array,
    assert_same,
    compute,
    data,
    fill,
    prefilled,
)
from tests.contract.engines import EngineCase


async def submitted(
    executor: Executor, slots: list[Slot], outputs: list[Array] | None = None
) -> list[asyncio.Task[object]]:
    """Runs that are with the engine, and whose end the loop has not seen yet."""
    given = dict(enumerate(outputs)) if outputs is not None else None
    runs = [asyncio.ensure_future(executor.run(slot, outputs=given)) for slot in slots]
    await asyncio.sleep(0)
    assert not any(run.done() for run in runs)
    assert {slot.state for slot in slots} <= {"submitted", "done"}
    return [*runs]


async def cancel(*runs: asyncio.Task[object]) -> None:
    for run in runs:
        run.cancel()
    for run in runs:
        with pytest.raises(asyncio.CancelledError):
            await run


@pytest.mark.both_loops
async def test_a_cancelled_run_keeps_its_slot_until_the_engine_lets_go(
    case: EngineCase, executor: Executor, ring: Ring
) -> None:
    ones, others = data(executor, 22), data(executor, 23)
    wanted, different = [await compute(executor, ring, arrays) for arrays in (ones, others)]
    targets = [prefilled(executor, context) for context in range(CONTEXTS)]
    before = executor.counters()
    for _ in range(20):
        slot = await ring.acquire()
        index, outputs = slot.index, targets[slot.context]
        for array in outputs:
            array.view(np.uint8)[...] = 0x5A
        fill(slot, ones)
        await cancel(*await submitted(executor, [slot], outputs))
        slot.release()
        held = []
        async with asyncio.timeout(60):
            while (again := await ring.acquire()).index != index:
                held.append(again)
        # To have it again means that the run is over and has written all it had to, or was given
        # up before it began. Where it could not be bound, nothing is copied to whoever gave it up.
        fill(again, others)
        untouched = all((array.view(np.uint8) == 0x5A).all() for array in outputs)
        left = [array.copy() for array in outputs] if untouched else wanted
        assert executor.rebinds or untouched
        assert_same(case, outputs, left)
        await executor.run(again)
        assert_same(case, [view.copy() for view in again.outputs], different)
        assert_same(case, outputs, left)
        for other in (again, *held):
            other.release()
    after = executor.counters()
    assert (after.allocations, after.frees) == (before.allocations, before.frees)
    assert after.live_blocks == before.live_blocks
    assert [info.state for info in ring.slots()] == ["free"] * DEPTH


@pytest.mark.both_loops
async def test_many_runs_cancelled_at_once_leave_the_others_alone(
    case: EngineCase, executor: Executor, ring: Ring, until: Until
) -> None:
    inputs = [data(executor, seed) for seed in range(30, 30 + DEPTH)]
    wanted = [await compute(executor, ring, arrays) for arrays in inputs]
    for turn in range(10):
        slots = [await ring.acquire() for _ in range(DEPTH)]
        for slot, arrays in zip(slots, inputs, strict=True):
            fill(slot, arrays)
        runs = await submitted(executor, slots)
        kept = turn % DEPTH
        await cancel(*(run for number, run in enumerate(runs) if number != kept))
        await runs[kept]
        assert_same(case, [view.copy() for view in slots[kept].outputs], wanted[kept])
        for slot in slots:
            slot.release()
    await until(lambda: {info.state for info in ring.slots()} == {"free"})
    assert ring.running == 0
    for arrays, result in zip(inputs, wanted, strict=True):
        assert_same(case, await compute(executor, ring, arrays), result)


@pytest.mark.both_loops
async def test_closing_after_cancelled_runs_waits_for_the_engine(case: EngineCase) -> None:
    for _ in range(5):
        executor = await case.open(contexts=CONTEXTS)
        ring = await executor.ring(DEPTH)
        slots = [await ring.acquire() for _ in range(DEPTH)]
        for slot in slots:
            fill(slot, data(executor, 24))
        await cancel(*await submitted(executor, slots))
        assert await executor.close(timeout=60)
        counters = executor.counters()
        assert counters.live_blocks == counters.live_bytes == 0
        assert counters.frees == counters.allocations
        for slot in slots:
            slot.release()
