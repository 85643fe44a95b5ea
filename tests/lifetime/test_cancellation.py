"""Runs cancelled at random points: every slot comes back, none twice, nothing hangs.

``native/tests/test_cancellation.cpp`` does the same to the core alone, which CI runs under the
thread sanitizer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pipeline import Executor, RunError, SlotStateError
from pipeline.memory.ring import Ring, Slot

Until = Callable[[Callable[[], bool]], Awaitable[None]]

OPTIONS = {
    "latency_ms": 0.05,
    "jitter_ms": 0.2,
    "distribution": "exponential",
    "seed": 3,
    "fail_runs": [50, 500, 900],
}


async def one_run(executor: Executor, ring: Ring, held: set[int]) -> str:
    """Take a slot, run it and say how that ended."""
    async with ring.slot() as slot:
        assert slot.index not in held, "a slot was handed out twice"
        held.add(slot.index)
        try:
            slot.inputs[0][...] = slot.index
            await executor.run(slot)
            assert slot.outputs[0].flat[0] == slot.index
        except RunError:
            return "failed"
        finally:
            held.discard(slot.index)
    return "done"


@pytest.mark.both_loops
async def test_a_thousand_runs_cancelled_at_random_points(until: Until) -> None:
    rng = random.Random(11)
    held: set[int] = set()
    ended = {"done": 0, "failed": 0, "cancelled": 0}
    settings: dict[str, Any] = {
        "input_shape": [1, 16, 16, 3],
        "contexts": 2,
        "options": OPTIONS,
    }
    async with (
        Executor.open(engine="simulated", **settings) as executor,
        executor.ring(depth=4) as ring,
    ):
        allocations = executor.counters().allocations
        for _ in range(1000):
            others = [
                asyncio.ensure_future(one_run(executor, ring, held))
                for _ in range(rng.randrange(3))
            ]
            victim = asyncio.ensure_future(one_run(executor, ring, held))
            for _ in range(rng.randrange(12)):
                await asyncio.sleep(0)
            if rng.random() < 0.5:
                await asyncio.wait({victim}, timeout=rng.random() * 0.0006)
            victim.cancel()
            for end in await asyncio.gather(victim, *others, return_exceptions=True):
                if isinstance(end, asyncio.CancelledError):
                    ended["cancelled"] += 1
                else:
                    assert not isinstance(end, BaseException), end
                    ended[end] += 1
        await until(lambda: all(slot.state == "free" for slot in ring.slots()))
        assert not held
        assert executor.counters().allocations == allocations
        # All of them can be taken again, each once.
        slots = [await ring.acquire() for _ in range(ring.depth)]
        assert sorted(slot.index for slot in slots) == list(range(ring.depth))
        for slot in slots:
            slot.release()
    assert executor.counters().live_blocks == 0
    assert ended["cancelled"] > 200
    assert ended["done"] > 200
    assert sum(ended.values()) >= 1000


@pytest.mark.both_loops
async def test_a_cancelled_slot_returns_only_when_the_engine_lets_go(until: Until) -> None:
    settings: dict[str, Any] = {"input_shape": [1, 8, 8, 3], "options": {"latency_ms": 100}}
    async with (
        Executor.open(engine="simulated", **settings) as executor,
        executor.ring(depth=1) as ring,
    ):
        slot: Slot = await ring.acquire()
        run = asyncio.ensure_future(executor.run(slot))
        await asyncio.sleep(0)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        slot.release()
        assert ring.slots()[0].state == "submitted"
        with pytest.raises(SlotStateError, match="released"):
            slot.release()
        async with asyncio.timeout(20):
            again = await ring.acquire()  # waits for the engine, needs no help
        assert again.index == slot.index
        again.release()


async def test_waiting_for_a_slot_can_be_cancelled() -> None:
    async with (
        Executor.open(engine="simulated", input_shape=[1, 8, 8, 3]) as executor,
        executor.ring(depth=1) as ring,
    ):
        first = await ring.acquire()
        waiting = [asyncio.ensure_future(ring.acquire()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        first.release()
        async with asyncio.timeout(20):
            second = await waiting[1]
        waiting[2].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        second.release()
        assert ring.slots()[0].state == "free"
