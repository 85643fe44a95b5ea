"""The faults of the original NPU zero-copy change, each with a test named after it.

Numbers are those of docs/openharmony.md. The rows about the registry and the choice of the route
are in test_allocator_registry.py. The drivers are the stand-ins for NNRT, which count what they
were asked for and refuse, by name, what a real one would corrupt memory on; the same is checked
on the allocator itself, and under the sanitizers, in native/tests/test_allocator.cpp and
test_nnrt.cpp. What no Python can bring about is there alone: row 8, as arrays of a tensor have one
size (test_nnrt.cpp), and who ends what `new` made, of row 6 (test_ownership.cpp).
"""

from __future__ import annotations

import gc
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from pipeline import AllocationError, BindingError, Executor, Ring, RunError
from pipeline.engines.awaitable_context import AwaitableContext
from tests import nnrt_standin
from tests.conftest import Until
from tests.nnrt_standin import StandInTensor
from tests.standins import NoCompilerError

Array = npt.NDArray[Any]
DEPTH = 2
IMAGE = StandInTensor("image", "uint8", (1, 24, 32, 3), "NHWC")
WIDE = StandInTensor("wide", "float32", (1, 20))
NARROW = StandInTensor("narrow", "float32", (1, 10))
TENSORS = 3
PLACES: tuple[tuple[Literal["input", "output"], int], ...] = (
    ("input", 0),
    ("output", 0),
    ("output", 1),
)


class Driver:
    """A stand-in and a model for it."""

    def __init__(self, version: str, model: Path) -> None:
        self.version = version
        self.model = model

    def open(self, **settings: Any) -> AwaitableContext[Executor]:
        return Executor.open(
            self.model,
            engine="nnrt",
            device="NPU",
            library=str(nnrt_standin.library(self.version)),
            options=nnrt_standin.options(self.version, [IMAGE], [WIDE, NARROW]),
            **settings,
        )

    def count(self, name: str) -> int:
        return nnrt_standin.statistics(self.version)[name]

    def clean(self) -> None:
        """Nothing is alive and nothing was misused."""
        stats = nnrt_standin.statistics(self.version)
        names = ("live_blocks", "live_executors", "live_descriptions", "leaked_blocks", "misuses")
        assert {name: stats[name] for name in names} == dict.fromkeys(names, 0)


@pytest.fixture(params=["v1", "v2"])
async def driver(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Driver]:
    try:
        nnrt_standin.library(request.param)
    except NoCompilerError as error:
        pytest.skip(str(error))
    nnrt_standin.reset(request.param)
    made = Driver(
        request.param, nnrt_standin.write_model(tmp_path / "m.om", [IMAGE], [WIDE, NARROW])
    )
    yield made
    gc.collect()
    made.clean()


def make_image(seed: int) -> Array:
    return np.random.default_rng(seed).integers(0, 256, IMAGE.shape, np.uint8)


def hoard(executor: Executor, kept: list[Array]) -> None:
    """Take memory until it is refused."""
    while True:
        kept.append(executor.allocate("input", 0))


async def check_run(executor: Executor, ring: Ring, seed: int) -> None:
    """A run on the slot's own memory gives what it has to."""
    image = make_image(seed)
    async with ring.slot() as slot:
        slot.inputs[0][...] = image
        await executor.run(slot)
        for index, tensor in enumerate((WIDE, NARROW)):
            wanted = nnrt_standin.expected([image], tensor, index)
            np.testing.assert_array_equal(slot.outputs[index], wanted)


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


async def test_fault_06_memory_goes_back_the_way_it_came(driver: Driver, until: Until) -> None:
    # Handed back to another call, tensor or executor, or to the C library, it stays alive there.
    async with driver.open(contexts=2) as executor:
        for direction, index in PLACES:
            for context in range(2):
                memory = executor.allocate(direction, index, context)
                memory[...] = 1
                assert driver.count("live_bytes") == memory.nbytes
                del memory
                executor.trim()
                await until(lambda: driver.count("live_bytes") == 0)
                assert driver.count("misuses") == 0
        async with executor.ring(4) as ring:
            await check_run(executor, ring, 6)
    made = 2 * TENSORS + 4 * TENSORS
    assert driver.count("frees") == driver.count("allocations") == made


@pytest.mark.parametrize("nth", range(1, DEPTH * TENSORS + 1))
async def test_fault_07_a_refused_allocation_leaks_nothing(
    driver: Driver, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_NNRT_REFUSE_ALLOCATION", str(nth))
    async with driver.open() as executor:
        with pytest.raises(AllocationError, match=r"(input|output) \d '\w+': .* refused \d+ bytes"):
            await executor.ring(DEPTH)
        assert driver.count("live_blocks") == executor.counters().live_blocks == nth - 1
        kept: list[Array] = []
        with pytest.raises(AllocationError):  # what came back from the ring is taken first
            hoard(executor, kept)
        assert driver.count("live_blocks") == executor.counters().live_blocks == nth - 1
        kept.clear()
        monkeypatch.delenv("STANDIN_NNRT_REFUSE_ALLOCATION")
        nnrt_standin.reset(driver.version)
        async with executor.ring(DEPTH) as ring:  # what there was is used again
            await check_run(executor, ring, nth)
            assert executor.counters().live_blocks == driver.count("live_blocks")


async def test_fault_09_a_block_is_not_reissued_while_it_is_referred_to(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_NNRT_HOLD_RUNS", str(DEPTH + 1))
    async with driver.open() as executor, executor.ring(DEPTH) as ring:
        slot = await ring.acquire()
        image, spare = executor.allocate("input", 0), executor.allocate("input", 0)
        place, elsewhere = address(image), address(spare)
        image[...] = wanted = make_image(9)
        run = slot.submit({0: image})
        try:
            del image, spare  # freed, the first while the engine reads it
            other = executor.allocate("input", 0)
            assert address(other) == elsewhere
            other[...] = 0
        finally:
            nnrt_standin.release(driver.version)
        await run
        np.testing.assert_array_equal(slot.outputs[0], nnrt_standin.expected([wanted], WIDE))
        slot.release()
        allocations = executor.counters().allocations
        assert address(executor.allocate("input", 0)) == place  # and then it is
        assert executor.counters().allocations == allocations
        del other


async def test_fault_10_the_last_reference_frees(driver: Driver, until: Until) -> None:
    async with driver.open() as executor, executor.ring(DEPTH) as ring:
        before = driver.count("allocations")
        for seed in range(100):
            async with ring.slot() as slot:
                slot.inputs[0][...] = make_image(seed)
                output = executor.allocate("output", 0)
                await executor.run(slot, outputs={0: output})
                kept = output[0, 3:]  # a slice is a reference as well
                del output
                other = executor.allocate("output", 0)
                assert address(other) != address(kept) - 12
                del kept, other
        assert driver.count("allocations") == before + 2
        executor.trim()
        assert executor.counters().live_blocks == DEPTH * TENSORS
        await until(lambda: driver.count("live_blocks") == DEPTH * TENSORS)


async def test_fault_11_memory_keeps_its_executor(driver: Driver, until: Until) -> None:
    executor = await driver.open()
    ring = await executor.ring(DEPTH)
    kept = executor.allocate("output", 0)
    slot = await ring.acquire()
    view = slot.inputs[0]
    assert not await executor.close()
    del executor, ring, slot
    gc.collect()
    kept[...] = 5
    view[...] = 6
    assert kept.sum() == 5 * math.prod(WIDE.shape)
    assert driver.count("live_executors") == 1
    del kept
    assert driver.count("leaked_blocks") == 0
    assert driver.count("live_executors") == 1
    del view
    await until(lambda: driver.count("live_executors") == 0)


async def test_fault_12_nothing_stays_bound_after_a_run(
    driver: Driver, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = 2 * DEPTH + 2
    monkeypatch.setenv("STANDIN_NNRT_FAIL_RUNS", str(failing))
    async with driver.open() as executor, executor.ring(DEPTH) as ring:
        image, output = executor.allocate("input", 0), executor.allocate("output", 0)
        image[...] = make_image(1)
        async with ring.slot() as slot:
            await executor.run(slot, {0: image}, {0: output})
        before = output.copy()
        for seed in range(DEPTH):
            await check_run(executor, ring, seed)  # went elsewhere
        np.testing.assert_array_equal(output, before)
        async with ring.slot() as slot:
            assert driver.count("runs") == failing - 1
            with pytest.raises(RunError):
                await executor.run(slot, {0: image}, {0: output})
        await check_run(executor, ring, 12)  # until then the loop still holds the error's frames
        np.testing.assert_array_equal(output, before)
        del image, output
        executor.trim()
        # Now the driver has unmapped what was bound last.
        await until(lambda: driver.count("live_blocks") == DEPTH * TENSORS)
        for seed in range(2 * DEPTH):
            await check_run(executor, ring, seed)


async def test_fault_13_copying_allocates_nothing(driver: Driver) -> None:
    async with driver.open() as executor, executor.ring(DEPTH) as ring:
        before = nnrt_standin.statistics(driver.version)
        places = set()
        for seed in range(200):
            image, output = make_image(seed), np.zeros(WIDE.shape, WIDE.dtype)
            async with ring.slot() as slot:
                places.add((slot.index, address(slot.inputs[0])))
                report = await executor.run(slot, {0: image}, {0: output})
            assert (report.inputs, report.outputs) == (("copied",), ("copied", "slot"))
            np.testing.assert_array_equal(output, nnrt_standin.expected([image], WIDE))
        after = nnrt_standin.statistics(driver.version)
        assert len(places) == DEPTH
        for name in ("allocations", "frees", "live_blocks"):
            assert after[name] == before[name]


async def test_fault_15_only_the_base_of_a_live_block_is_bound(driver: Driver) -> None:
    async with driver.open() as executor, executor.ring(DEPTH) as ring:
        wide = executor.allocate("output", 0)
        wide[...] = -1
        inside = wide.reshape(-1)[5:15].reshape(NARROW.shape)  # driver memory, but no block
        beginning = wide[:, :10]  # a block, but another tensor's
        for target in (inside, beginning):
            async with ring.slot() as slot:
                slot.inputs[0][...] = image = make_image(15)
                report = await executor.run(slot, outputs={1: target})
                assert report.outputs == ("slot", "copied")
            np.testing.assert_array_equal(target, nnrt_standin.expected([image], NARROW, 1))
        assert (wide[0, 15:] == -1).all()


async def test_fault_18_the_size_of_bound_memory_is_checked(driver: Driver) -> None:
    async with driver.open() as executor, executor.ring(DEPTH) as ring:
        runs = driver.count("runs")
        output = executor.allocate("output", 0)
        output[...] = -1
        short = output[:, :19]  # begins where the block does, so it could be bound
        async with ring.slot() as slot:
            with pytest.raises(BindingError, match="output 0 'wide': 80 bytes needed, 76 given"):
                await executor.run(slot, outputs={0: short})
        assert (output == -1).all()
        assert driver.count("runs") == runs


async def test_fault_19_a_wrong_size_is_found_before_the_run(driver: Driver) -> None:
    async with driver.open() as executor, executor.ring(DEPTH) as ring:
        runs = driver.count("runs")
        async with ring.slot() as slot:
            with pytest.raises(BindingError, match="output 1 'narrow': 40 bytes needed, 36 given"):
                await executor.run(slot, outputs={1: np.zeros((1, 9), np.float32)})
            with pytest.raises(BindingError, match="input 0 'image': 2304 bytes needed, 2301 giv"):
                await executor.run(slot, {0: np.zeros(2301, np.uint8)})
            assert driver.count("runs") == runs
            slot.inputs[0][...] = 0
            await executor.run(slot)  # the slot is as good as before
        assert driver.count("runs") == runs + 1


async def test_fault_20_free_memory_is_bounded_and_can_be_given_back(
    driver: Driver, until: Until
) -> None:
    size = math.prod(IMAGE.shape)
    limit = 5 * size + 100
    async with driver.open(memory_limit=limit) as executor, executor.ring(DEPTH) as ring:
        held: list[Array] = []
        with pytest.raises(AllocationError, match=f"input 0 'image': .* of at most {limit} bytes"):
            hoard(executor, held)
        assert len(held) == 5 - DEPTH
        assert driver.count("live_blocks") == DEPTH * TENSORS + len(held)
        held.clear()
        gc.collect()
        assert driver.count("live_blocks") == DEPTH * TENSORS + 5 - DEPTH  # kept for the next
        executor.trim()
        assert executor.counters().live_blocks == DEPTH * TENSORS
        await until(lambda: driver.count("live_blocks") == DEPTH * TENSORS)
        await check_run(executor, ring, 20)


async def test_fault_21_a_run_makes_no_descriptors(driver: Driver) -> None:
    async with driver.open(contexts=2) as executor, executor.ring(4) as ring:
        before = nnrt_standin.statistics(driver.version)
        for seed in range(200):
            await check_run(executor, ring, seed)
        after = nnrt_standin.statistics(driver.version)
        assert after["runs"] == before["runs"] + 200
        for name in ("descriptions", "live_descriptions", "allocations", "frees"):
            assert after[name] == before[name]
        # v1 has no call that undoes a binding, so each run must replace all of them.
        bound = after["binds"] - before["binds"]
        assert bound == (200 * TENSORS if driver.version == "v1" else 0)
