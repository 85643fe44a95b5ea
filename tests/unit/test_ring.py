"""The ring as the event loop sees it: waiting in turn, cancelling, failing, closing."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import numpy as np
import pytest

from pipeline import BindingError, ClosedError, Executor, Ring, RunError, SlotStateError
from pipeline.engines.awaitable_context import AwaitableContext
from tests.usage import resources

Until = Callable[[Callable[[], bool]], Awaitable[None]]

pytestmark = pytest.mark.both_loops
DEPTH = 2


def opened(contexts: int = 1, **options: Any) -> AwaitableContext[Executor]:
    shapes = [{"name": "first", "shape": [1, 4]}, {"name": "second", "shape": [2, 3]}]
    return Executor.open(
        engine="simulated",
        contexts=contexts,
        input_shape=[1, 8, 8, 3],
        options={"outputs": shapes, **options},
    )


@pytest.fixture
async def executor() -> AsyncIterator[Executor]:
    async with opened() as executor:
        yield executor


@pytest.fixture
async def ring(executor: Executor) -> AsyncIterator[Ring]:
    async with executor.ring(DEPTH) as ring:
        yield ring


async def turns(count: int = 3) -> None:
    """Let other tasks go on until they wait."""
    for _ in range(count):
        await asyncio.sleep(0)


def states(ring: Ring) -> list[str]:
    return [info.state for info in ring.slots()]


# Waiting.


async def test_whoever_waits_longest_is_served_first(ring: Ring) -> None:
    held = [await ring.acquire() for _ in range(DEPTH)]
    order: list[int] = []

    async def wait(number: int) -> None:
        async with ring.slot():
            order.append(number)

    waiting = [asyncio.ensure_future(wait(number)) for number in range(6)]
    await turns()
    assert order == []
    for slot in held:
        slot.release()
    async with asyncio.timeout(30):
        await asyncio.gather(*waiting)
    assert order == list(range(6))


async def test_a_newcomer_does_not_overtake(ring: Ring) -> None:
    held = [await ring.acquire() for _ in range(DEPTH)]
    waiting = asyncio.ensure_future(ring.acquire())
    await turns()
    held[0].release()  # the loop has not looked yet
    late = asyncio.ensure_future(ring.acquire())
    async with asyncio.timeout(30):
        first = await waiting
    assert not late.done()
    first.release()
    async with asyncio.timeout(30):
        (await late).release()
    held[1].release()
    assert states(ring) == ["free"] * DEPTH


async def test_a_slot_given_to_somebody_who_was_cancelled_is_not_lost(ring: Ring) -> None:
    held = [await ring.acquire() for _ in range(DEPTH)]
    waiting = asyncio.ensure_future(ring.acquire())
    await turns()
    held[0].release()
    ring._on_ready()  # the waiter has its slot, but did not run yet
    assert states(ring).count("filling") == DEPTH
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sorted(states(ring)) == ["filling", "free"]
    held[1].release()


async def test_the_slots_take_turns(ring: Ring, executor: Executor) -> None:
    seen = []
    for _ in range(3 * DEPTH):
        async with ring.slot() as slot:
            seen.append(slot.index)
            await executor.run(slot)
    assert seen == [0, 1] * 3


async def test_the_least_busy_context_is_next() -> None:
    async with opened(contexts=2) as executor, executor.ring(4) as ring:
        first = await ring.acquire()
        second = await ring.acquire()
        assert {first.context, second.context} == {0, 1}
        third = await ring.acquire()
        third.release()
        first.release()
        again = await ring.acquire()
        assert again.context == first.context
        for slot in (second, again):
            slot.release()


async def test_forgotten_views_are_told(
    ring: Ring, executor: Executor, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    kept = []
    for _ in range(DEPTH):
        async with ring.slot() as slot:
            await executor.run(slot)
            kept.append(slot.outputs[0])
    with caplog.at_level(logging.WARNING, "pipeline.memory.ring"):
        waiting = asyncio.ensure_future(ring.acquire())
        await until(lambda: "views keep all 2 (slot 0: 1, slot 1: 1)" in caplog.text)
    assert not waiting.done()
    kept.clear()
    async with asyncio.timeout(30):
        (await waiting).release()


# Tensors.


async def test_tensors_are_a_sequence(ring: Ring, executor: Executor) -> None:
    async with ring.slot() as slot:
        slot.inputs[0][...] = np.arange(192).reshape(1, 8, 8, 3)
        assert len(slot.inputs) == 1
        await executor.run(slot)
        outputs = slot.outputs
        assert len(outputs) == 2
        assert [view.shape for view in outputs] == [(1, 4), (2, 3)]
        assert [view.shape for view in outputs[1:]] == [(2, 3)]
        assert [view.shape for view in outputs[::-1]] == [(2, 3), (1, 4)]
        np.testing.assert_array_equal(outputs[-1], outputs[1])
        np.testing.assert_array_equal(outputs[0], [[0, 48, 96, 144]])
        for index in (2, -3):
            with pytest.raises(IndexError, match="there are 2"):
                outputs[index]
    assert ring.slots()[slot.index].views == 0


# Runs.


async def test_a_run_that_fails_costs_no_slot() -> None:
    async with opened(fail_runs=[1, 3]) as executor, executor.ring(1) as ring:
        for number in range(1, 5):
            async with ring.slot() as slot:
                slot.inputs[0][...] = number
                if number in (1, 3):
                    with pytest.raises(RunError, match=f"run {number} fails, as scripted"):
                        await executor.run(slot)
                    assert slot.state == "done"
                    with pytest.raises(SlotStateError, match="it must be leased"):
                        slot.outputs[0]
                else:
                    report = await executor.run(slot)
                    assert report.finished_ns >= report.started_ns
                    assert (slot.outputs[0] == number).all()
        assert states(ring) == ["free"]


async def test_a_cancelled_run_leaves_its_slot_to_the_holder(until: Until) -> None:
    async with opened(latency_ms=20) as executor, executor.ring(1) as ring:
        slot = await ring.acquire()
        run = slot.submit()
        run.cancel()
        assert slot.state == "submitted"
        await until(lambda: slot.state == "done")
        slot.release()
        assert states(ring) == ["free"]
        async with ring.slot() as slot:
            await executor.run(slot)


async def test_whoever_awaits_the_run_of_a_released_slot_is_told(until: Until) -> None:
    async with opened(latency_ms=20) as executor, executor.ring(1) as ring:
        slot = await ring.acquire()
        run = asyncio.ensure_future(executor.run(slot))
        await turns()
        slot.release()
        with pytest.raises(SlotStateError, match="released while its run was awaited"):
            await run
        await until(lambda: states(ring) == ["free"])


async def test_a_body_that_raises_gives_the_slot_back(ring: Ring) -> None:
    with pytest.raises(ZeroDivisionError):
        async with ring.slot():
            raise ZeroDivisionError
    assert states(ring) == ["free"] * DEPTH


async def test_runs_of_all_contexts_overlap() -> None:
    async with opened(contexts=2, latency_ms=50) as executor, executor.ring(2) as ring:
        slots = [await ring.acquire(), await ring.acquire()]
        first, second = await asyncio.gather(*(executor.run(slot) for slot in slots))
        assert first.started_ns < second.finished_ns
        assert second.started_ns < first.finished_ns
        for slot in slots:
            slot.release()


# Closing.


async def test_close_fails_what_is_awaited() -> None:
    async with opened(latency_ms=20) as executor:
        ring = await executor.ring(1)
        slot = await ring.acquire()
        run = asyncio.ensure_future(executor.run(slot))
        waiting = asyncio.ensure_future(ring.acquire())
        await turns()
        await ring.close()
        with pytest.raises(ClosedError, match="during the run"):
            await run
        with pytest.raises(ClosedError, match="waiting for a slot"):
            await waiting
        slot.release()
    assert executor.counters().live_blocks == 0


async def test_close_with_nobody_listening_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """No 'exception was never retrieved' for runs and waiters that were given up."""
    async with opened(latency_ms=5) as executor:
        ring = await executor.ring(1)
        slot = await ring.acquire()
        slot.submit()
        del slot
        await ring.close()
    assert caplog.records == []


async def test_closing_is_bounded_while_the_engine_hangs(until: Until) -> None:
    for _ in range(100):  # until a run has begun when the executor is closed; others are given up
        async with opened(hang_runs=[1], hang_seconds=2) as executor:
            ring = await executor.ring(DEPTH)
            slot = await ring.acquire()
            run = asyncio.ensure_future(executor.run(slot))
            await turns()
            async with asyncio.timeout(30):
                hung = not await executor.close(timeout=0.05)
            with pytest.raises(ClosedError):
                await run
            slot.release()
            await until(lambda: executor.counters().live_blocks == 0)
            assert executor.counters().frees == executor.counters().allocations
        if hung:
            return
    pytest.fail("no run had begun")


async def test_runs_that_nobody_wants_are_not_computed() -> None:
    async with opened(latency_ms=50) as executor, executor.ring(8) as ring:
        slots = [await ring.acquire() for _ in range(8)]
        runs = [slot.submit() for slot in slots]
        report = await runs[0]
        for slot in slots[:-1]:
            slot.release()
        last = await runs[-1]
        slots[-1].release()
        # One more was at work already when they were given up.
        assert last.started_ns - report.finished_ns < 3 * 50e6


async def test_a_mapping_changed_after_submit_moves_no_result() -> None:
    async with opened(latency_ms=20) as executor, executor.ring(1) as ring, ring.slot() as slot:
        given, later = (np.zeros((1, 4), np.float32) for _ in range(2))
        outputs = {0: given}
        slot.inputs[0][...] = 9
        run = slot.submit(outputs=outputs)
        outputs[0] = outputs[1] = later
        await run
        assert (given == 9).all()
        assert (later == 0).all()


async def test_an_array_of_another_shape_is_refused_whatever_its_strides() -> None:
    async with opened() as executor, executor.ring(1) as ring, ring.slot() as slot:
        image = np.zeros((8, 8, 4), np.uint8)[:4, :, :3]  # rows as far apart as the tensor's
        with pytest.raises(BindingError):
            slot.submit(inputs={0: image[None]})


async def test_nothing_is_no_engine_executor_or_resizer() -> None:
    from pipeline import _native

    made: list[Callable[[], object]] = [
        lambda: _native.Executor(cast("Any", None)),
        lambda: _native.Ring(cast("Any", None), 1),
    ]
    for make in made:
        with pytest.raises(TypeError):
            make()


async def test_an_executor_that_is_dropped_warns_and_ends_its_threads(until: Until) -> None:
    before = resources()
    executor = await opened(contexts=2)
    ring = await executor.ring(2)
    slot = await ring.acquire()
    slot.submit()
    holders = [executor, ring, slot]
    del executor, ring, slot
    with pytest.warns(ResourceWarning, match="unclosed executor of simulated"):
        holders.clear()
    gc.collect()
    await until(lambda: not resources() - before)


async def test_a_slot_whose_memory_is_lent_to_a_run_is_not_handed_out() -> None:
    async with opened(latency_ms=50) as executor, executor.ring(2) as ring:
        one, other = await ring.acquire(), await ring.acquire()
        other.inputs[0][...] = 7
        index, run = other.index, one.submit(inputs={0: other.inputs[0]})
        other.release()
        assert ring.slots()[index].views == 1
        again = await ring.acquire()
        assert run.done()
        again.inputs[0][...] = 99
        assert (await run).inputs == ("bound",)
        assert (one.outputs[0] == 7).all()
        for slot in (one, again):
            slot.release()


async def test_a_slot_of_another_executor_does_not_run(executor: Executor) -> None:
    async with opened() as other, other.ring(1) as ring, ring.slot() as slot:
        with pytest.raises(SlotStateError, match="slot 0: it is no slot of this executor"):
            await executor.run(slot)
        await other.run(slot)


async def test_a_slot_may_be_released_inside_its_block(ring: Ring, executor: Executor) -> None:
    async with ring.slot() as slot:
        slot.release()
        again = await ring.acquire()
    assert states(ring).count("filling") == 1
    await executor.run(again)
    again.release()


async def test_what_is_opened_and_not_awaited_warns(executor: Executor) -> None:
    with pytest.warns(RuntimeWarning, match=r"^Executor\.open was never awaited$"):
        opened()
    with pytest.warns(RuntimeWarning, match=r"^Executor\.ring was never awaited$"):
        executor.ring(1)


async def test_a_ring_belongs_to_its_loop(ring: Ring) -> None:
    def elsewhere() -> None:
        asyncio.run(ring.acquire())

    with pytest.raises(RuntimeError, match="it belongs to another event loop"):
        await asyncio.to_thread(elsewhere)
    assert states(ring) == ["free"] * DEPTH


async def test_waiting_for_memory_on_the_loop_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(latency_ms=200) as executor, executor.ring(1) as ring, ring.slot() as slot:
        run = slot.submit()
        memory = await asyncio.to_thread(executor.allocate, "input", 0)
        assert not caplog.messages
        await run
        executor.allocate("input", 0)
        assert not caplog.messages
        slot.release()
        async with ring.slot() as again:
            run = again.submit(inputs={0: memory})
            executor.allocate("input", 0)
            assert "allocate holds up the event loop until the runs of context 0" in caplog.text
            await run


async def test_two_rings_of_one_executor_do_not_mix(executor: Executor) -> None:
    async with executor.ring(2) as one, executor.ring(2) as other:
        here, there = await one.acquire(), await other.acquire()
        here.inputs[0][...] = 1
        there.inputs[0][...] = 2
        await asyncio.gather(executor.run(here), executor.run(there))
        assert (here.outputs[0] == 1).all()
        assert (there.outputs[0] == 2).all()
        here.release()
        await one.close()
        assert (there.outputs[0] == 2).all()
        there.release()
        async with other.slot() as slot:
            await executor.run(slot)
