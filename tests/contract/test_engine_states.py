"""Slots and rings of any engine refuse what their state, depth or memory does not allow."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline import (
    AllocationError,
    BindingError,
    ConfigError,
    Executor,
    Ring,
    Slot,
    SlotStateError,
)
from tests.contract.conformance import DEPTH, compute, data, fill
from tests.contract.engines import EngineCase


def state_of(slot: Slot) -> str:
    return slot.state


async def test_a_slot_refuses_what_its_state_does_not_allow(executor: Executor, ring: Ring) -> None:
    slot = await ring.acquire()
    assert state_of(slot) == "filling"
    with pytest.raises(SlotStateError, match=r"read an output while filling; it must be leased"):
        slot.outputs[0]
    fill(slot, data(executor, 16))
    run = slot.submit()
    for refused in (lambda: slot.inputs[0], lambda: slot.outputs[0], slot.submit):
        with pytest.raises(SlotStateError, match=f"slot {slot.index}: cannot"):
            refused()
    await run
    assert state_of(slot) == "leased"
    with pytest.raises(SlotStateError, match=r"write an input while leased; it must be filling"):
        slot.inputs[0]
    with pytest.raises(SlotStateError, match=r"run while leased; it must be filling"):
        await executor.run(slot)
    slot.release()
    assert state_of(slot) == "free"
    # The next one to have it is not disturbed by the old handle.
    held = [await ring.acquire() for _ in range(DEPTH)]
    for stale in (slot.submit, lambda: slot.inputs[0], lambda: slot.outputs[0]):
        with pytest.raises(SlotStateError, match="released"):
            stale()
    with pytest.raises(SlotStateError, match="released"):
        slot.release()
    assert [info.state for info in ring.slots()] == ["filling"] * DEPTH
    for each in held:
        each.release()


@pytest.mark.parametrize("depth", [0, -1, 1025])
async def test_a_depth_that_makes_no_sense_is_refused(executor: Executor, depth: int) -> None:
    with pytest.raises(ConfigError, match=f"depth: {depth} is not between 1 and 1024"):
        await executor.ring(depth)


@pytest.mark.parametrize("depth", ["auto", True, 2.5])
async def test_a_depth_that_is_no_number_is_refused(executor: Executor, depth: Any) -> None:
    with pytest.raises(ConfigError, match=f"depth: {depth!r} is not a whole number"):
        await executor.ring(depth)


@pytest.mark.parametrize("outputs", [{"scores": None}, {-1: None}, {0: [1.0]}])
async def test_what_is_no_array_for_a_tensor_is_refused(ring: Ring, outputs: Any) -> None:
    async with ring.slot() as slot:
        with pytest.raises(BindingError, match="outputs: needed tensor indices and NumPy arrays"):
            slot.submit(outputs=outputs)
        await slot.submit()


async def test_too_little_memory_is_an_error_that_leaves_nothing_behind(case: EngineCase) -> None:
    async with case.open(contexts=1) as probe:
        specs = [*probe.inputs, *probe.outputs]
    largest = max(spec.driver_bytes for spec in specs)
    async with case.open(contexts=1, memory_limit=2 * largest) as executor:
        with pytest.raises(AllocationError, match=f"{largest} bytes needed") as raised:
            await executor.ring(3)
        assert f"of at most {2 * largest} bytes" in str(raised.value)
        async with executor.ring(2) as ring:
            await compute(executor, ring, data(executor, 17))
    assert executor.counters().live_blocks == 0
