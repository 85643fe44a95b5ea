"""What every engine has to do; one suite over all of ``engines.ENGINES``."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline import (
    AllocationError,
    BindingError,
    ClosedError,
    ConfigError,
    Executor,
    Ring,
    Slot,
    SlotStateError,
)

if TYPE_CHECKING:
    from tests.conftest import Until
    from tests.contract.engines import ENGINES, EngineCase
else:
    from engines import ENGINES

Array = npt.NDArray[Any]
DEPTH, CONTEXTS = 3, 2


@pytest.fixture(params=ENGINES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> EngineCase:
    found: EngineCase = request.param
    if (why := found.missing()) is not None:
        pytest.skip(why)
    return found


@pytest.fixture
async def executor(case: EngineCase) -> AsyncIterator[Executor]:
    async with case.open(contexts=CONTEXTS) as opened:
        yield opened


@pytest.fixture
async def ring(executor: Executor) -> AsyncIterator[Ring]:
    async with executor.ring(DEPTH) as opened:
        yield opened


def data(executor: Executor, seed: int) -> list[Array]:
    """An array for each input, different for each seed."""
    random = np.random.default_rng(seed)
    return [
        random.integers(0, 256, spec.shape).astype(spec.dtype, order="C")
        for spec in executor.inputs
    ]


def fill(slot: Slot, arrays: list[Array]) -> None:
    for index, array in enumerate(arrays):
        slot.inputs[index][...] = array


async def compute(executor: Executor, ring: Ring, arrays: list[Array]) -> list[Array]:
    """One run on the slot's own memory; copies of the outputs."""
    async with ring.slot() as slot:
        fill(slot, arrays)
        report = await executor.run(slot)
        assert report.inputs == ("slot",) * len(executor.inputs)
        assert report.outputs == ("slot",) * len(executor.outputs)
        assert 0 < report.started_ns <= report.finished_ns
        return [view.copy() for view in slot.outputs]


def assert_same(case: EngineCase, given: list[Array], wanted: list[Array]) -> None:
    assert len(given) == len(wanted)
    for one, other in zip(given, wanted, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        largest = float(np.abs(other.astype(np.float64)).max(initial=0))
        np.testing.assert_allclose(one, other, rtol=0, atol=case.tolerance * largest)


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def way_of_own_memory(executor: Executor) -> str:
    """What a run does with memory of the executor: not every engine can bind it anew."""
    return "bound" if executor.rebinds else "copied"


def state_of(slot: Slot) -> str:
    return slot.state


async def slot_of(ring: Ring, context: int) -> Slot:
    """A slot of this context, to fill; the others go back."""
    held = [await ring.acquire() for _ in range(ring.depth)]
    chosen = next(slot for slot in held if slot.context == context)
    for slot in held:
        if slot is not chosen:
            slot.release()
    return chosen


# What it says of its tensors, and what they hold.


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


async def test_a_picture_goes_in_as_bytes(executor: Executor) -> None:
    picture = executor.inputs[0]
    assert picture.dtype == np.uint8
    assert picture.layout == "NHWC"


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


# A caller's own arrays.


def prefilled(executor: Executor, context: int) -> list[Array]:
    """Memory of the executor for every output, with a pattern in it."""
    outputs = [
        executor.allocate("output", index, context) for index in range(len(executor.outputs))
    ]
    for array in outputs:
        array.view(np.uint8)[...] = 0x5A
    return outputs


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


# Views.


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


# States.


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


# Closing.


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


# Cancelling.


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
        # To have it again means that the run is over, and has written all it had to: where it
        # could not be bound, nothing is copied to whoever gave it up.
        fill(again, others)
        left = wanted if executor.rebinds else [array.copy() for array in outputs]
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


async def test_openings_leave_no_thread_and_no_descriptor(
    case: EngineCase, until: Until, held_by_process: Callable[[], Counter[str]]
) -> None:
    async def once() -> None:
        async with case.open(contexts=CONTEXTS) as executor, executor.ring(DEPTH) as ring:
            await compute(executor, ring, data(executor, 25))
        assert executor.counters().live_blocks == 0

    for _ in range(2):  # libraries open what they keep for ever
        await once()
    before = held_by_process()
    for _ in range(case.openings):
        await once()
    # A thread that is done may not be gone yet.
    await until(lambda: not held_by_process() - before)


# Many at once.


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
