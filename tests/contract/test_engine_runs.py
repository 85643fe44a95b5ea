"""Every engine describes its tensors and gives each run its own result, in memory that stays."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from pipeline import Executor, Ring
from tests.contract.conformance import (
    CONTEXTS,
    DEPTH,
    Array,
    address,
    assert_same,
    compute,
    data,
    fill,
)
from tests.contract.engines import EngineCase


async def test_specs_are_those_of_the_arrays(executor: Executor, ring: Ring) -> None:
    assert executor.contexts == CONTEXTS
    assert executor.engine
    assert executor.device
    assert len(executor.inputs) > 0
    assert len(executor.outputs) > 0
    async with ring.slot() as slot:
        inputs = list(slot.inputs)
        fill(slot, data(executor, 0))
        await executor.run(slot)
        outputs = list(slot.outputs)
    for specs, views in ((executor.inputs, inputs), (executor.outputs, outputs)):
        assert len(specs) == len(views)
        for spec, view in zip(specs, views, strict=True):
            assert view.dtype == spec.dtype
            assert view.shape == spec.shape
            assert spec.name
            assert min(spec.shape) >= 1
            assert spec.nbytes == view.nbytes == int(np.prod(spec.shape)) * view.itemsize
            assert spec.driver_bytes >= spec.nbytes
            assert spec.layout == "" or len(spec.layout) == len(spec.shape)
            assert spec.row_stride == 0 or spec.row_stride == view.strides[1]


async def test_a_image_goes_in_as_bytes(executor: Executor) -> None:
    image = executor.inputs[0]
    assert image.dtype == np.uint8
    assert image.layout == "NHWC"


@pytest.mark.both_loops
async def test_runs_are_the_same_on_every_slot_and_each_time(
    case: EngineCase, executor: Executor, ring: Ring
) -> None:
    ones, others = data(executor, 1), data(executor, 2)
    wanted = await compute(executor, ring, ones)
    different = await compute(executor, ring, others)
    # Or nothing below would mean anything.
    assert any(not np.array_equal(a, b) for a, b in zip(wanted, different, strict=True))
    used = set()
    for _ in range(2):
        held = [await ring.acquire() for _ in range(DEPTH)]
        for slot in held:
            fill(slot, ones)
            await executor.run(slot)
            assert_same(case, [view.copy() for view in slot.outputs], wanted)
            used.add((slot.index, slot.context))
            slot.release()
        assert_same(case, await compute(executor, ring, others), different)
    assert {index for index, _ in used} == set(range(DEPTH))
    assert {context for _, context in used} == set(range(CONTEXTS))


async def test_memory_stays_where_it_is_over_200_runs(executor: Executor, ring: Ring) -> None:
    arrays = data(executor, 3)
    before = executor.counters()
    places: dict[int, list[int]] = {}
    for _ in range(200):
        async with ring.slot() as slot:
            fill(slot, arrays)
            here = [address(view) for view in slot.inputs]
            await executor.run(slot)
            here += [address(view) for view in slot.outputs]
            assert places.setdefault(slot.index, here) == here
    everywhere = [place for here in places.values() for place in here]
    assert len(places) == DEPTH
    assert len(set(everywhere)) == len(everywhere)
    after = executor.counters()
    assert after.allocations == before.allocations
    assert after.frees == before.frees == 0
    assert after.live_blocks == before.live_blocks == len(everywhere)
    assert [info.state for info in ring.slots()] == ["free"] * DEPTH


@pytest.mark.both_loops
async def test_each_of_many_tasks_gets_the_result_of_its_own_input(
    case: EngineCase, executor: Executor, ring: Ring
) -> None:
    inputs = [data(executor, seed) for seed in range(8)]
    wanted = [await compute(executor, ring, arrays) for arrays in inputs]

    async def task(number: int) -> list[Array]:
        if number % 3 == 0:  # some with arrays of their own
            outputs = [np.zeros(spec.shape, spec.dtype) for spec in executor.outputs]
            async with ring.slot() as slot:
                given = dict(enumerate(inputs[number % 8]))
                await executor.run(slot, given, dict(enumerate(outputs)))
            return outputs
        return await compute(executor, ring, inputs[number % 8])

    async with asyncio.timeout(120):
        results = await asyncio.gather(*(task(number) for number in range(48)))
    for number, result in enumerate(results):
        assert_same(case, result, wanted[number % 8])
    assert [info.state for info in ring.slots()] == ["free"] * DEPTH
