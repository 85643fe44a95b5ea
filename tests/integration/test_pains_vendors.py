"""What users complain about with vendors' NPU libraries cannot happen, by their stand-ins."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rknn_model import Model
from standin import Standin

from pipeline import EngineError, Executor, Pipeline
from pipeline.engines.awaitable_context import AwaitableContext
from pipeline.memory.ring import Ring
from tests import nnrt_standin, rknn_standin
from tests.conftest import Until
from tests.integration.complaints import HANG, Array, all_accounted_for, synthetic
from tests.standins import NoCompilerError

pytestmark = pytest.mark.usefixtures("no_leak")


class Rockchip:
    """The stand-in runtime for Rockchip NPUs and a model for it."""

    def __init__(self, folder: Path) -> None:
        self.standin = Standin(rknn_standin.library())
        self.folder = folder
        self.model = self.use("tiny")

    def use(self, preset: str) -> Model:
        self.model = rknn_standin.write_model(self.folder / "model.rknn", preset)
        return self.model

    def settings(self, **model: Any) -> dict[str, Any]:
        return {
            "path": str(self.folder / "model.rknn"),
            "engine": "rknn",
            "library": self.standin.path,
            **model,
        }

    def open(self, **settings: Any) -> AwaitableContext[Executor]:
        made = self.settings(**settings)
        return Executor.open(made.pop("path"), **made)

    def count(self, name: str) -> int:
        return self.standin.stats()[name]

    def make_image(self, seed: int) -> Array:
        return np.random.default_rng(seed).integers(0, 256, (32, 32, 3), np.uint8)

    def expected(self, pixels: Array) -> Array:
        return self.model.real(self.model.run([np.moveaxis(pixels, -1, 0)[None]], 0))[0]

    async def check_run(self, executor: Executor, ring: Ring, seed: int) -> None:
        async with ring.slot() as slot:
            slot.inputs[0][0] = pixels = self.make_image(seed)
            await executor.run(slot)
            np.testing.assert_array_equal(slot.outputs[0], self.expected(pixels))


@pytest.fixture
def npu(tmp_path: Path) -> Iterator[Rockchip]:
    """The stand-in, whose rules must be kept and with which nothing may be left."""
    try:
        found = Rockchip(tmp_path)
    except NoCompilerError as error:
        pytest.skip(str(error))
    before = found.standin.stats()
    yield found
    assert found.count("misuse") == before["misuse"], found.standin.last_misuse()


Switch = pytest.MonkeyPatch


async def test_npu_memory_gives_its_descriptors_back(npu: Rockchip) -> None:
    """rknn-toolkit2 532: making and destroying memory leaks a descriptor each time."""

    async def life() -> None:
        async with npu.open(contexts=2) as executor, executor.ring(4) as ring:
            await npu.check_run(executor, ring, 1)
            assert len(os.listdir("/proc/self/fd")) > files  # they are real

    files = len(os.listdir("/proc/self/fd"))
    await life()
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await life()
    assert len(os.listdir("/proc/self/fd")) == files
    assert npu.count("live_mems") == 0


async def test_no_frame_makes_binds_or_destroys_npu_memory(npu: Rockchip) -> None:
    """rknn_model_zoo 68: creating, binding and destroying it for each frame crashes."""
    names = ("allocations", "binds", "live_mems", "live_contexts")
    settings = {"source": synthetic(), "model": npu.settings(contexts="auto"), "ring": {"depth": 6}}
    async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
        async for result in pipe:
            if result.sequence == 20:
                before = [npu.count(name) for name in names]
            if result.sequence == 300:
                assert [npu.count(name) for name in names] == before
                break
    assert pipe.stats().driver_allocations[0] == pipe.stats().driver_allocations[1] == 12


async def test_an_output_that_the_engine_does_not_write_is_found_at_the_start(
    tmp_path: Path, monkeypatch: Switch
) -> None:
    """rknpu 48: outputs that were allocated before stay zero."""
    try:
        library = nnrt_standin.library("v2")
    except NoCompilerError as error:
        pytest.skip(str(error))
    image = nnrt_standin.StandInTensor("image", "uint8", (1, 24, 32, 3), "NHWC")
    outputs = [nnrt_standin.StandInTensor(name, "float32", (1, 4)) for name in ("boxes", "scores")]
    path = nnrt_standin.write_model(tmp_path / "model.om", [image], outputs)
    monkeypatch.setenv("STANDIN_NNRT_SILENT_OUTPUT", "1")
    opening = Executor.open(path, engine="nnrt", device="NPU", library=str(library))
    async with opening as executor:
        with pytest.raises(EngineError, match="output 1 'scores': the engine did not write"):
            await executor.ring(2)


async def test_an_engine_that_keeps_old_addresses_is_seen_through(
    npu: Rockchip, monkeypatch: Switch
) -> None:
    """nnstreamer 536, 3577: old addresses are kept; outputs are overwritten while they are read."""
    monkeypatch.setenv("STANDIN_RKNN_REBIND", "ignore")
    auto = npu.open(contexts=1, options={"binding": "auto"})
    async with auto as executor, executor.ring(3) as ring:
        assert executor.notes()["binding"].startswith("context_per_slot")
        slot = await ring.acquire()
        slot.inputs[0][0] = pixels = npu.make_image(0)
        await executor.run(slot)
        view = slot.outputs[0]
        slot.release()
        for seed in range(1, 20):  # on the other slots
            await npu.check_run(executor, ring, seed)
        np.testing.assert_array_equal(view, npu.expected(pixels))
        del view
    insisting = npu.open(contexts=1, options={"binding": "rebind"})
    with pytest.raises(EngineError, match=r"options\.binding: this runtime ignores memory"):
        async with insisting as executor, executor.ring(3):
            pass


async def test_outputs_are_given_back_and_runs_make_no_garbage(npu: Rockchip) -> None:
    """rknn-toolkit2 207, 42: memory grows until the board dies."""
    general = npu.open(contexts=1, options={"mode": "general"})
    async with general as executor, executor.ring(2) as ring:
        pixels = npu.make_image(0)

        async def work(runs: int) -> None:
            for _ in range(runs):
                async with ring.slot() as slot:
                    slot.inputs[0][0] = pixels
                    await executor.run(slot)

        await work(100)
        names = ("live_outputs", "live_mems", "allocations")
        before, blocks = [npu.count(name) for name in names], sys.getallocatedblocks()
        await work(1000)
        assert [npu.count(name) for name in names] == before
        assert sys.getallocatedblocks() - blocks < 500


async def test_a_run_blocks_a_thread_of_its_context_and_nothing_else(
    npu: Rockchip, monkeypatch: Switch, until: Until
) -> None:
    """rknn-toolkit2 577: a run that does not block returns, and waiting for it fails."""
    monkeypatch.setenv("STANDIN_RKNN_HANG_RUN", "3")  # two are to try out the slots
    async with npu.open(contexts=2) as executor, executor.ring(2) as ring:
        slot = await ring.acquire()
        hanging = slot.submit()
        await until(lambda: npu.standin.hanging() == 1)
        for seed in range(10):  # this loop and the other context go on
            await npu.check_run(executor, ring, seed)
        npu.standin.release_hangs()
        with pytest.raises(EngineError, match=r"\(-2\)"):
            await hanging
        slot.release()
        await npu.check_run(executor, ring, 11)


async def test_memory_is_its_contexts_own_and_is_left_alone_while_that_runs(
    npu: Rockchip, monkeypatch: Switch
) -> None:
    """rknn-toolkit2 533: memory used from another context's thread is a kernel panic."""
    monkeypatch.setenv("STANDIN_RKNN_ONE_THREAD", "1")
    monkeypatch.setenv("STANDIN_RKNN_RUN_US", "2000")
    rebind = npu.open(contexts=3, options={"binding": "rebind"})
    async with rebind as executor, executor.ring(6) as ring:

        async def ask(seed: int) -> None:
            async with ring.slot() as slot:
                image = executor.allocate("input", 0, slot.context)
                image[0] = pixels = npu.make_image(seed)
                report = slot.submit({0: image})
                del image  # while its context may be running
                assert (await report).inputs == ("bound",)
                np.testing.assert_array_equal(slot.outputs[0], npu.expected(pixels))

        await asyncio.gather(*map(ask, range(40)))
        executor.trim()
    # That the stand-in saw no call from another thread is what the fixture checks.


async def test_each_core_has_a_context_of_its_own(npu: Rockchip, monkeypatch: Switch) -> None:
    """rknn-toolkit2 129: one context over three cores is hardly faster than one core."""
    monkeypatch.setenv("STANDIN_RKNN_RUN_US", "30000")
    async with npu.open(contexts="auto") as executor, executor.ring(3) as ring:
        assert (executor.contexts, executor.notes()["cores"]) == (3, "0, 1, 2")
        slots = [await ring.acquire() for _ in range(3)]
        assert {slot.context for slot in slots} == {0, 1, 2}
        reports = await asyncio.gather(*(executor.run(slot) for slot in slots))
        latest = max(report.started_ns for report in reports)
        assert all(report.finished_ns > latest for report in reports)  # all at the same time
        for slot in slots:
            slot.release()


async def test_a_board_that_refuses_work_is_told_with_its_driver_and_left_alone(
    npu: Rockchip, monkeypatch: Switch
) -> None:
    """rknn-toolkit2 384, 294: the submit fails, and the board locks up."""
    monkeypatch.setenv("STANDIN_RKNN_FAIL_RUN", "3+")  # two are to try out the slots
    model = npu.settings(options={"cores": [1]}, max_failures=2, reopen_attempts=1)
    settings = {"source": synthetic(frames=1000), "model": model, "ring": {"depth": 2}}
    runs = npu.count("runs")
    async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
        with pytest.raises(EngineError, match=r"core 1 .*driver 0\.9\.8"):
            await pipe.wait()
    assert npu.count("runs") - runs < 20  # it is not asked again and again
    assert pipe.stats().dropped["failed"] >= 3
    assert all_accounted_for(pipe)


async def test_buffers_are_sized_and_laid_out_as_the_npu_says(npu: Rockchip) -> None:
    """rknn_model_zoo 448, 156, rknpu2 9: wrong attributes, a forced layout, types left out."""
    model = npu.use("mixed")
    opening = npu.open(options={"dequantize": False})
    async with opening as executor, executor.ring(1) as ring, ring.slot() as slot:
        slot.inputs[0][0] = pixels = npu.make_image(1)
        slot.inputs[1][...] = vector = np.arange(10).reshape(slot.inputs[1].shape)
        await executor.run(slot)
        wanted = model.run([np.moveaxis(pixels, -1, 0)[None], vector.astype(np.int8)])
        for given, spec, raw in zip(slot.outputs, executor.outputs, wanted, strict=True):
            assert (given.dtype, given.shape) == (spec.dtype, tuple(spec.shape))
            np.testing.assert_array_equal(given, raw, err_msg=spec.name)
        del given
