"""Faults 1 to 5, 14, 16 and 17 of the original NPU zero-copy change: allocators and routes.

Numbers are those of docs/mindspore_lite.md. The driver is the stand-in for MindSpore Lite, which
counts each rule of the interface that is broken. The registry itself, and the same under the
sanitizers: native/tests/test_allocator_registry.cpp and test_mindspore_lite_faults.cpp.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline import AllocationError, BindingError, Executor, Ring
from pipeline.engines.awaitable_context import AwaitableContext
from tests import mslite_standin
from tests.conftest import Until
from tests.mslite_standin import StandInTensor
from tests.standins import NoCompilerError

Array = npt.NDArray[Any]
INPUTS = [
    StandInTensor("image", "uint8", (1, 6, 8, 3), "NHWC"),
    StandInTensor("more", "int32", (1, 4)),
]
OUTPUTS = [StandInTensor("first", "float32", (1, 10)), StandInTensor("second", "int64", (3, 5))]
IN_PLACE = "zero-copy, memory of the model's allocator"


class Driver:
    """The stand-in of OpenHarmony's library and a model for it."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self.library = str(mslite_standin.library("OH_AI"))

    def open(self, **settings: Any) -> AwaitableContext[Executor]:
        return Executor.open(
            self.model, engine="mindspore_lite", device="CPU", library=self.library, **settings
        )

    def count(self, name: str) -> int:
        return mslite_standin.count("OH_AI", name)


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    try:
        mslite_standin.library("OH_AI")
    except NoCompilerError as error:
        pytest.skip(str(error))
    mslite_standin.reset("OH_AI")
    made = Driver(mslite_standin.write_model(tmp_path / "m.ms", INPUTS, OUTPUTS))
    yield made
    gc.collect()
    names = ("violations", "models_live", "tensors_live", "blocks_live", "allocators_live")
    assert {name: made.count(name) for name in names} == dict.fromkeys(names, 0)
    assert made.count("driver_allocations") == made.count("driver_frees")


def data(seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 200, tensor.shape).astype(tensor.dtype) for tensor in INPUTS]


async def check_run(executor: Executor, ring: Ring, seed: int) -> None:
    """A run on the slot's own memory gives what it has to."""
    arrays = data(seed)
    async with ring.slot() as slot:
        for view, array in zip(slot.inputs, arrays, strict=True):
            view[...] = array
        await executor.run(slot)
        for index, tensor in enumerate(OUTPUTS):
            wanted = mslite_standin.expected(arrays, tensor, index)
            np.testing.assert_array_equal(slot.outputs[index], wanted)


async def test_fault_01_the_end_of_a_model_leaves_the_allocators_of_others(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The original's registry was one for all models, and empty after the end of any.
    monkeypatch.setenv("STANDIN_MSLITE_FORGETFUL", "1")
    async with driver.open() as kept, kept.ring(2) as ring:
        async with driver.open() as other, other.ring(2) as short:
            await check_run(other, short, 1)
        async with kept.ring(3) as more:  # memory of the allocators that were forgotten
            await check_run(kept, more, 1)
        kept.allocate("output", 1)[...] = 1
        await check_run(kept, ring, 2)
        assert set(kept.zero_copy().values()) == {True}


async def test_fault_02_models_are_opened_and_closed_at_the_same_time(driver: Driver) -> None:
    # The stand-in's list of allocators is as the original's, without a lock: two threads that are
    # in it at once break a rule, which the fixture looks for.
    async def use(seed: int) -> None:
        for turn in range(5):
            async with driver.open(contexts=2) as executor, executor.ring(2) as ring:
                await check_run(executor, ring, 10 * seed + turn)

    await asyncio.gather(*(use(seed) for seed in range(6)))


async def test_fault_03_memory_keeps_the_allocator_that_gave_it(
    driver: Driver, until: Until
) -> None:
    executor = await driver.open()
    ring = await executor.ring(1)
    await check_run(executor, ring, 3)
    kept = executor.allocate("output", 0)
    kept[...] = 7
    assert not await executor.close()
    del executor, ring
    gc.collect()
    assert driver.count("allocators_live") == len(INPUTS) + len(OUTPUTS)
    assert (kept == 7).all()
    del kept
    await until(lambda: driver.count("models_live") == 0)
    assert driver.count("allocators_live") == 0


async def test_fault_03_an_allocator_that_is_not_taken_is_an_error(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_MSLITE_EXPIRED", "1")  # none is set, with success
    async with driver.open() as executor:
        with pytest.raises(
            AllocationError, match="input 0 'image': MindSpore Lite did not take the"
        ):
            await executor.ring(2)


async def test_fault_04_a_null_allocator_is_an_error_by_name(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_MSLITE_LOST", "second")  # it had one when it was loaded
    async with driver.open() as executor:
        with pytest.raises(AllocationError, match="output 1 'second': the allocator is null"):
            await executor.ring(2)


async def test_fault_04_a_null_allocator_is_never_passed_on(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_MSLITE_NO_ALLOCATOR", "all")
    async with driver.open() as executor, executor.ring(2) as ring:
        for seed in range(20):
            await check_run(executor, ring, seed)
        assert set(executor.zero_copy().values()) == {False}
        assert driver.count("inputs_bound") == driver.count("outputs_bound") == 0


async def test_fault_05_an_allocator_frees_only_what_it_gave(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tensors come with memory of their own; the original gave them an allocator all the same.
    monkeypatch.setenv("STANDIN_MSLITE_EAGER", "1")
    async with driver.open() as executor, executor.ring(2) as ring:
        for seed in range(20):
            await check_run(executor, ring, seed)
        assert set(executor.zero_copy().values()) == {False}


@pytest.mark.parametrize("missing", ["first,more", "second,image"])
async def test_fault_14_each_tensor_is_decided_by_itself(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setenv("STANDIN_MSLITE_NO_ALLOCATOR", missing)
    async with driver.open() as executor, executor.ring(2) as ring:
        for seed in range(20):
            await check_run(executor, ring, seed)
        for name, route in executor.routes().items():
            tensor = name.split("'")[1]
            assert (route == IN_PLACE) == (tensor not in missing.split(",")), (name, route)


async def test_fault_14_foreign_arrays_and_driver_memory_in_one_run(driver: Driver) -> None:
    async with driver.open() as executor, executor.ring(2) as ring:
        arrays = data(14)
        own = executor.allocate("input", 1)
        own[...] = arrays[1]
        outputs = {0: executor.allocate("output", 0), 1: np.zeros(OUTPUTS[1].shape, np.int64)}
        async with ring.slot() as slot:
            report = await executor.run(slot, {0: arrays[0], 1: own}, outputs)
        assert report.inputs == ("copied", "bound")
        assert report.outputs == ("bound", "copied")
        for index, tensor in enumerate(OUTPUTS):
            wanted = mslite_standin.expected(arrays, tensor, index)
            np.testing.assert_array_equal(outputs[index], wanted)


@pytest.mark.parametrize("mode", ["honour", "replace", "drop"])
async def test_fault_16_the_output_array_is_always_initialised(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("STANDIN_MSLITE_OUTPUTS", mode)
    async with driver.open(contexts=2) as executor, executor.ring(4) as ring:
        for seed in range(20):
            await check_run(executor, ring, seed)


async def test_fault_17_outputs_that_are_dropped_with_success_are_found_out(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_MSLITE_OUTPUTS", "drop")
    async with driver.open() as executor, executor.ring(2) as ring:
        for seed in range(20):
            await check_run(executor, ring, seed)
        routes = executor.routes()
        assert routes["output 0 'first'"] == "zero-copy, external memory of the model's output"
        assert driver.count("outputs_bound") == 0


async def test_fault_17_one_bad_output_is_an_error_that_names_it(driver: Driver) -> None:
    async with driver.open() as executor, executor.ring(2) as ring:
        good = executor.allocate("output", 0)
        good[...] = -1
        runs = driver.count("runs")
        async with ring.slot() as slot:
            with pytest.raises(BindingError, match="output 1 'second': 120 bytes needed, 0 given"):
                await executor.run(slot, outputs={0: good, 1: np.zeros(0, np.int64)})
        assert (good == -1).all()
        assert driver.count("runs") == runs
        await check_run(executor, ring, 17)
