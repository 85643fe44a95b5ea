"""Views of any engine's memory are shared and keep their slot; those of outputs are read-only."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from pipeline import Executor, Ring
from tests.contract.conformance import DEPTH, address, data, fill


async def test_views_of_outputs_are_read_only(executor: Executor, ring: Ring) -> None:
    async with ring.slot() as slot:
        fill(slot, data(executor, 12))
        await executor.run(slot)
        for view in slot.outputs:
            assert not view.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                view[...] = 0
            with pytest.raises(ValueError, match="WRITEABLE"):
                view.flags.writeable = True
            with pytest.raises(ValueError, match="WRITEABLE"):
                view[0].flags.writeable = True
            assert view.data.readonly


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="DLPack tells read-only since NumPy 2.1"
)
async def test_dlpack_shares_the_memory_and_keeps_the_slot(executor: Executor, ring: Ring) -> None:
    slot = await ring.acquire()
    arrays = data(executor, 13)
    fill(slot, arrays)
    taken = np.from_dlpack(slot.inputs[0])
    assert address(taken) == address(slot.inputs[0])
    np.testing.assert_array_equal(taken, arrays[0])
    del taken
    await executor.run(slot)
    view = slot.outputs[0]
    shared = np.from_dlpack(view)
    assert address(shared) == address(view)
    assert not shared.flags.writeable
    np.testing.assert_array_equal(shared, view)
    del view
    slot.release()
    assert ring.slots()[slot.index] == ("leased", 1)
    del shared
    assert ring.slots()[slot.index] == ("free", 0)


async def test_a_memoryview_shares_the_memory_and_keeps_the_slot(
    executor: Executor, ring: Ring
) -> None:
    slot = await ring.acquire()
    fill(slot, data(executor, 14))
    await executor.run(slot)
    wanted = slot.outputs[0].tobytes()
    look = slot.outputs[0].data
    assert look.shape == executor.outputs[0].shape
    slot.release()
    assert ring.slots()[slot.index] == ("leased", 1)
    assert look.tobytes() == wanted
    del look
    assert ring.slots()[slot.index] == ("free", 0)


@pytest.mark.both_loops
async def test_a_slot_is_not_used_again_while_a_view_of_it_lives(
    executor: Executor, ring: Ring
) -> None:
    slot = await ring.acquire()
    fill(slot, data(executor, 15))
    await executor.run(slot)
    whole = slot.outputs[0]
    kept = whole[..., 1:]  # a slice keeps it as well as the whole
    wanted = kept.copy()
    index = slot.index
    slot.release()
    del whole
    assert ring.slots()[index] == ("leased", 1)
    for seed in range(3 * DEPTH):
        async with ring.slot() as other:
            assert other.index != index
            fill(other, data(executor, seed))
            await executor.run(other)
    np.testing.assert_array_equal(kept, wanted)
    assert ring.slots()[index] == ("leased", 1)
    del kept
    assert ring.slots()[index] == ("free", 0)
    seen = set()
    for _ in range(DEPTH):
        async with ring.slot() as other:
            seen.add(other.index)
    assert index in seen


@pytest.mark.both_loops
async def test_dropping_the_last_view_wakes_whoever_waits(executor: Executor, ring: Ring) -> None:
    kept = []
    for _ in range(DEPTH):
        async with ring.slot() as slot:
            kept.append(slot.inputs[0])
    assert [info.views for info in ring.slots()] == [1] * DEPTH
    waiting = asyncio.ensure_future(ring.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    del kept[0]
    async with asyncio.timeout(30):
        slot = await waiting
    assert slot.state == "filling"
    slot.release()
