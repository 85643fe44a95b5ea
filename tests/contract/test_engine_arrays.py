"""Every engine takes a caller's own arrays for one run, or refuses them before it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipeline import BindingError, ConfigError, Executor, Ring, Slot
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


def way_of_own_memory(executor: Executor) -> str:
    """What a run does with memory of the executor: not every engine can bind it anew."""
    return "bound" if executor.rebinds else "copied"


async def slot_of(ring: Ring, context: int) -> Slot:
    """A slot of this context, to fill; the others go back."""
    held = [await ring.acquire() for _ in range(ring.depth)]
    chosen = next(slot for slot in held if slot.context == context)
    for slot in held:
        if slot is not chosen:
            slot.release()
    return chosen


async def test_memory_of_the_executor_is_used_for_one_run(
    case: EngineCase, executor: Executor, ring: Ring
) -> None:
    ones, others = data(executor, 4), data(executor, 5)
    wanted, different = [await compute(executor, ring, arrays) for arrays in (ones, others)]
    slot = await slot_of(ring, 1)
    inputs = [executor.allocate("input", index, 1) for index in range(len(executor.inputs))]
    for array, values in zip(inputs, ones, strict=True):
        array[...] = values
    outputs = prefilled(executor, 1)
    fill(slot, others)  # must not be looked at
    allocations = executor.counters().allocations

    report = await executor.run(slot, dict(enumerate(inputs)), dict(enumerate(outputs)))

    way = way_of_own_memory(executor)
    assert report.inputs == (way,) * len(inputs)
    assert report.outputs == (way,) * len(outputs)
    assert_same(case, outputs, wanted)
    if executor.rebinds:
        for index in range(len(outputs)):
            with pytest.raises(BindingError, match=f"output {index} .* not to the slot"):
                slot.outputs[index]
    else:
        assert_same(case, [view.copy() for view in slot.outputs], wanted)
    slot.release()
    # The next run without them leaves them alone.
    kept = [array.copy() for array in outputs]
    for _ in range(DEPTH):
        assert_same(case, await compute(executor, ring, others), different)
    assert_same(case, await compute(executor, ring, ones), wanted)
    for array, before in zip(outputs, kept, strict=True):
        np.testing.assert_array_equal(array, before)
    assert executor.counters().allocations == allocations


async def test_one_tensor_alone_can_be_given(
    case: EngineCase, executor: Executor, ring: Ring
) -> None:
    ones = data(executor, 6)
    wanted = await compute(executor, ring, ones)
    last = len(executor.outputs) - 1
    async with ring.slot() as slot:
        fill(slot, ones)
        target = executor.allocate("output", last, slot.context)
        report = await executor.run(slot, outputs={last: target})
        assert report.outputs == ("slot",) * last + (way_of_own_memory(executor),)
        assert report.inputs == ("slot",) * len(executor.inputs)
        assert_same(case, [*(slot.outputs[i].copy() for i in range(last)), target], wanted)


async def test_given_memory_may_be_dropped_during_the_run(
    case: EngineCase, executor: Executor, ring: Ring
) -> None:
    ones = data(executor, 7)
    wanted = await compute(executor, ring, ones)
    slot = await ring.acquire()
    inputs = {}
    for index, values in enumerate(ones):
        inputs[index] = executor.allocate("input", index, slot.context)
        inputs[index][...] = values
    run = slot.submit(inputs)
    inputs.clear()
    del index
    gc.collect()
    again = executor.allocate("input", 0, slot.context)  # never the block that is being read
    again[...] = 0
    assert (await run).inputs == (way_of_own_memory(executor),) * len(ones)
    assert_same(case, [view.copy() for view in slot.outputs], wanted)
    slot.release()


@pytest.mark.parametrize("lender", ["the same ring", "another ring"])
async def test_what_a_slot_lends_is_not_overwritten_during_the_run(
    case: EngineCase, executor: Executor, ring: Ring, lender: str
) -> None:
    ones, others = data(executor, 18), data(executor, 19)
    wanted = await compute(executor, ring, ones)
    async with executor.ring(DEPTH) as apart:
        source = ring if lender == "the same ring" else apart
        held = [await ring.acquire() for _ in range(DEPTH)]
        first, second, *rest = sorted(held, key=lambda slot: slot.context)
        if source is apart:
            rest.append(second)
            second = await slot_of(apart, first.context)
        for each in rest:
            each.release()
        lent = second
        fill(lent, ones)
        fill(first, others)
        run = first.submit(dict(enumerate(lent.inputs)))
        lent.release()
        for _ in range(source.depth - (source is ring)):  # every slot that can be had
            fill(await source.acquire(), others)
        await run
        assert_same(case, [view.copy() for view in first.outputs], wanted)
        first.release()
        await source.close()


@pytest.mark.parametrize("kind", ["plain", "other context"])
async def test_any_other_memory_is_copied(
    case: EngineCase, executor: Executor, ring: Ring, kind: str
) -> None:
    ones, others = data(executor, 8), data(executor, 9)
    wanted = await compute(executor, ring, ones)
    slot = await slot_of(ring, 0)
    fill(slot, others)
    if kind == "plain":
        inputs = ones
        outputs = [np.zeros(spec.shape, spec.dtype) for spec in executor.outputs]
    else:
        inputs = [executor.allocate("input", index, 1) for index in range(len(ones))]
        for array, values in zip(inputs, ones, strict=True):
            array[...] = values
        outputs = prefilled(executor, 1)

    report = await executor.run(slot, dict(enumerate(inputs)), dict(enumerate(outputs)))

    assert report.inputs == ("copied",) * len(inputs)
    assert report.outputs == ("copied",) * len(outputs)
    assert_same(case, outputs, wanted)
    assert_same(case, [view.copy() for view in slot.outputs], wanted)  # the slot has it, too
    slot.release()


async def test_a_larger_output_is_filled_at_its_beginning(
    case: EngineCase, executor: Executor, ring: Ring
) -> None:
    ones = data(executor, 10)
    wanted = await compute(executor, ring, ones)
    count = wanted[0].size
    target = np.full(count + 5, 7, wanted[0].dtype)
    async with ring.slot() as slot:
        fill(slot, ones)
        report = await executor.run(slot, outputs={0: target})
    assert report.outputs[0] == "copied"
    assert_same(case, [target[:count].reshape(wanted[0].shape)], wanted[:1])
    assert (target[count:] == 7).all()


def _too_small(array: Array) -> Array:
    return array.reshape(-1)[:-1].copy()


def _too_large(array: Array) -> Array:
    return np.concatenate((array.reshape(-1), array.reshape(-1)[:1]))


def _of_another_type(array: Array) -> Array:
    return array.astype(np.complex64)


def _apart(array: Array) -> Array:
    return np.repeat(array, 2, axis=-1)[..., ::2]


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("direction", "spoil", "told"),
    [
        ("input", _too_small, "{needed} bytes needed, {given} given"),
        ("input", _too_large, "{needed} bytes needed, {given} given"),
        ("input", _of_another_type, "{dtype} needed, complex64 given"),
        ("input", _apart, "C-contiguous"),
        ("output", _too_small, "{needed} bytes needed, {given} given"),
        ("output", _of_another_type, "{dtype} needed, complex64 given"),
        ("output", _apart, "C-contiguous"),
        ("output", _read_only, "read-only"),
    ],
)
async def test_an_array_that_does_not_fit_is_refused_before_the_run(
    case: EngineCase,
    executor: Executor,
    ring: Ring,
    direction: str,
    spoil: Callable[[Array], Array],
    told: str,
) -> None:
    ones = data(executor, 11)
    wanted = await compute(executor, ring, ones)
    specs = executor.inputs if direction == "input" else executor.outputs
    index = len(specs) - 1
    spec = specs[index]
    wrong = spoil(np.ones(spec.shape, spec.dtype))
    before = wrong.copy()
    good = np.zeros(executor.outputs[0].shape, executor.outputs[0].dtype)
    async with ring.slot() as slot:
        fill(slot, ones)
        both = ({index: wrong}, {0: good}) if direction == "input" else (None, {index: wrong})
        with pytest.raises(BindingError) as raised:
            await executor.run(slot, *both)
        place = f"{direction} {index} '{spec.name}'"
        assert place in str(raised.value)
        expected = told.format(needed=spec.nbytes, given=wrong.nbytes, dtype=spec.dtype.name)
        assert expected in str(raised.value)
        assert slot.state == "filling"
        np.testing.assert_array_equal(wrong, before)
        assert not good.any()
        await executor.run(slot)  # nothing of it is left
        assert_same(case, [view.copy() for view in slot.outputs], wanted)


@pytest.mark.parametrize("direction", ["input", "output"])
async def test_a_tensor_that_is_not_there_is_refused(
    executor: Executor, ring: Ring, direction: Any
) -> None:
    count = len(executor.inputs if direction == "input" else executor.outputs)
    array = np.zeros(4, np.uint8)
    async with ring.slot() as slot:
        both = ({count: array}, None) if direction == "input" else (None, {count: array})
        with pytest.raises(BindingError, match=f"{direction} {count}: the model has {count}"):
            await executor.run(slot, *both)
        assert slot.state == "filling"
    with pytest.raises(BindingError, match=f"{direction} {count}"):
        executor.allocate(direction, count)
    with pytest.raises(ConfigError, match="context 2"):
        executor.allocate(direction, 0, CONTEXTS)
