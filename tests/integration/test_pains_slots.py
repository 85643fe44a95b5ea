"""What users complain about with slots cannot happen: lost, reused or mixed-up memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from typing import Any

import cv2
import numpy as np
import pytest

from pipeline import BindingError, ClosedError, Executor, Pipeline, Result, RunError
from pipeline.cli.report import table
from pipeline.engines.awaitable_context import AwaitableContext
from pipeline.engines.simulated import expected_output
from pipeline.sources.synthetic import synthetic_frame
from tests.integration.complaints import HANG, Array, config, synthetic
from tests.usage import resident

pytestmark = pytest.mark.usefixtures("no_leak")


def opened(**options: Any) -> AwaitableContext[Executor]:
    contexts = options.pop("contexts", 1)
    return Executor.open(
        engine="simulated", contexts=contexts, input_shape=[1, 8, 8, 3], options=options
    )


async def test_a_request_keeps_its_memory_and_a_crowd_of_them_takes_no_more() -> None:
    """openvino 11727, 36554: the queue grows; an input is freed while it is used."""
    async with opened(latency_ms=1) as executor, executor.ring(2) as ring:

        async def ask(value: int) -> None:
            async with ring.slot() as slot:
                image = executor.allocate("input", 0)
                image[...] = value
                run = slot.submit({0: image})
                del image  # what is allocated meanwhile must not be this
                other = executor.allocate("input", 0)
                other[...] = 255
                await run
                assert (slot.outputs[0] == value).all()

        await asyncio.gather(*map(ask, range(10)))
        before = executor.counters()
        await asyncio.gather(*map(ask, range(200)))
        assert executor.counters().allocations <= before.allocations + 2
        assert executor.counters().live_blocks <= before.live_blocks + 2


async def test_a_slot_comes_back_however_its_run_did_not_start() -> None:
    """model_server 4335: a slot is lost when the start throws."""
    async with opened(fail_runs=[1, 2, 3, 4]) as executor, executor.ring(2) as ring:
        for _ in range(4):
            async with ring.slot() as slot:
                with pytest.raises(BindingError):
                    await executor.run(slot, {0: np.zeros(5, np.uint8)})
            with pytest.raises(RunError, match="as scripted"):
                async with ring.slot() as slot:
                    await executor.run(slot)
            with pytest.raises(ZeroDivisionError):
                async with ring.slot():
                    raise ZeroDivisionError
        assert [slot.state for slot in ring.slots()] == ["free", "free"]


async def test_the_native_module_neither_grows_nor_miscounts_references() -> None:
    """dlstreamer 172, 77: out of memory after hours; a reference count that is wrong."""
    failing = list(range(5, 10_000, 5))

    async with opened(fail_runs=failing) as executor, executor.ring(2) as ring:

        async def work(runs: int) -> None:
            for _ in range(runs):
                async with ring.slot() as slot:
                    slot.inputs[0][...] = 1
                    with contextlib.suppress(RunError):
                        await executor.run(slot)
                        view = slot.outputs[0][:, 2:]
                        assert view.sum() == 8
                        del view

        def counts() -> list[int]:
            gc.collect()
            spec, dtype = executor.inputs[0], executor.outputs[0].dtype
            return [sys.getrefcount(each) for each in (RunError, spec, dtype, executor, ring)]

        await work(500)
        before, memory, blocks = counts(), resident(), sys.getallocatedblocks()
        await work(3000)
        assert all(abs(a - b) < 50 for a, b in zip(counts(), before, strict=True))
        assert sys.getallocatedblocks() - blocks < 1000
        assert resident() - memory < 2_000_000


async def test_a_result_that_is_kept_is_not_recycled() -> None:
    """model_api 651: callbacks see buffers that are used again."""
    kept: list[tuple[Array, Array]] = []
    async with asyncio.timeout(HANG), Pipeline(config(source=synthetic())) as pipe:
        earlier: Result | None = None
        async for result in pipe:
            if earlier is not None:
                with pytest.raises(ClosedError, match="given back"):
                    _ = earlier.image
            earlier = result
            if len(kept) < 4:
                for view in (result.image, result.outputs[0].array):
                    assert not view.flags.writeable
                    kept.append((view, view.copy()))
            if result.sequence == 100:
                break
    for view, copy in kept:
        np.testing.assert_array_equal(view, copy)


@pytest.fixture(scope="session")
def _pool() -> None:
    """OpenCV starts its threads once, with the first large frame."""
    cv2.resize(np.zeros((48, 64, 3), np.uint8), (1600, 1600))


@pytest.mark.usefixtures("_pool")
async def test_the_stage_that_takes_longest_is_shown() -> None:
    """go-rknnlite 47: zero copy gave no gain, as preprocessing took the time."""
    for stage, latency_ms, side in (("infer", 20, 32), ("preprocess", 0, 1600)):
        model = {"input_shape": [1, side, side, 3]}
        settings = config(latency_ms, model=model, source=synthetic(frames=20))
        async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
            await pipe.wait()
        (line,) = (line for line in table(pipe.stats()).splitlines() if "slowest" in line)
        assert line.split()[0] == stage


async def test_results_are_those_of_their_own_frames_and_in_order() -> None:
    """immich 31142, rknn-multi-threaded 9: pooled results are mixed up or lag by N frames."""
    model = {
        "contexts": 4,
        "options": {"latency_ms": 0.2, "jitter_ms": 2, "distribution": "exponential"},
    }
    cameras = {name: synthetic(frames=100) for name in ("left", "right")}
    cameras["right"]["uri"] = cameras["right"]["uri"].replace("64", "128")
    seen: dict[str, list[int]] = {"left": [], "right": []}
    settings = config(model=model, cameras=cameras, ring={"depth": 8})
    async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
        async for result in pipe:
            seen[result.camera].append(result.sequence)
            if result.camera == "left":  # of the input's own size, so nothing is interpolated
                image = synthetic_frame(result.sequence, 64, 48)
                wanted = expected_output(image, (1, 10), np.float32)
                np.testing.assert_array_equal(result.outputs[0].array, wanted)
    assert seen == {name: list(range(100)) for name in cameras}
