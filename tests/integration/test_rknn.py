"""Engine rknn, from the library and the command line, on the stand-in for librknnrt.so."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import make_model
import numpy as np
import numpy.typing as npt
import pytest
from rknn_model import Model
from standin import Standin

import pipeline
from pipeline.engines import rknn
from pipeline.errors import ConfigError, EngineNotInstalledError, RunError, SlotStateError
from tests import rknn_standin
from tests.standins import NoCompilerError

pytest.importorskip("pipeline._native")

ROOT = Path(__file__).parents[2]
FRAMES = 20_000
DISTINCT = 61  # frames, more than slots and no multiple of them
MODES: dict[str, dict[str, Any]] = {
    "context_per_slot": {"mode": "zero_copy", "binding": "context_per_slot"},
    "rebind": {"mode": "zero_copy", "binding": "rebind"},
    "general": {"mode": "general"},
}
Array = npt.NDArray[Any]


@pytest.fixture(scope="session")
def library() -> Path:
    """The stand-in's path."""
    try:
        return rknn_standin.library()
    except NoCompilerError as error:
        pytest.skip(str(error))


@pytest.fixture
def standin(library: Path) -> Iterator[Standin]:
    """The stand-in, whose rules the test must keep and with which it must leave nothing."""
    found = Standin(library)
    before = found.stats()
    yield found
    names = ("live_mems", "live_contexts", "live_outputs", "live_weights", "internal_bytes")
    watchdog = time.monotonic() + 20
    # The thread that opened the executor may be the last to let go of it.
    while any(found.stats()[name] != before[name] for name in names):
        assert time.monotonic() < watchdog, {name: found.stats()[name] for name in names}
        os.sched_yield()
    assert found.stats()["misuse"] == before["misuse"], found.last_misuse()


@pytest.fixture
def tiny(tmp_path: Path) -> Model:
    """A small model, saved as tiny.rknn."""
    model = make_model.PRESETS["tiny"](None)
    model.save(tmp_path / "tiny.rknn")
    return model


def _images(size: int = 32, count: int = DISTINCT) -> list[Array]:
    rng = np.random.default_rng(7)
    return [rng.integers(0, 256, (size, size, 3), np.uint8) for _ in range(count)]


def _expected(model: Model, image: Array, shape: int = 0) -> list[Array]:
    return model.real(model.run([np.moveaxis(image, -1, 0)[None]], shape))


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _mappings(word: str) -> int:
    return Path("/proc/self/maps").read_text().count(word)


@pytest.mark.parametrize("mode", MODES)
def test_frames_in_order_without_allocations(
    mode: str, tmp_path: Path, tiny: Model, standin: Standin
) -> None:
    """Through the whole pipeline: values, order, memory, descriptors, pointers."""
    images = _images()
    expected = [_expected(tiny, image)[0] for image in images]

    async def frames() -> AsyncIterator[Array]:
        for i in range(FRAMES):
            yield images[i % DISTINCT]

    config = {
        "source": {"overflow": "block"},
        "model": {
            "path": str(tmp_path / "tiny.rknn"),
            "engine": "rknn",
            "library": standin.path,
            "contexts": 3,
            "options": MODES[mode],
        },
        "ring": {"depth": 6},
        "preprocess": {"resize": "stretch", "color": "bgr"},
    }

    async def main() -> pipeline.Stats:
        pointers: set[int] = set()
        sequence = 0
        async with pipeline.Pipeline(config, frames=frames()) as running:
            async for result in running:
                assert result.sequence == sequence
                array = result.outputs[0].array
                assert np.array_equal(array, expected[sequence % DISTINCT]), sequence
                pointers.add(array.__array_interface__["data"][0])
                del array
                if sequence == 100:
                    allocations, open_files = standin.stats()["allocations"], _descriptors()
                    mappings, known = _mappings("rknn-standin"), set(pointers)
                sequence += 1
                if sequence == FRAMES:
                    assert standin.stats()["allocations"] == allocations
                    assert _descriptors() == open_files
                    assert _mappings("rknn-standin") == mappings
                    assert pointers == known
                    assert len(known) == 6
            assert sequence == FRAMES
        return running.stats()

    stats = asyncio.run(main())
    assert stats.results == FRAMES
    assert stats.driver_allocations[0] == stats.driver_allocations[1] > 0
    assert stats.engine == "rknn"
    if mode == "general":
        assert set(stats.zero_copy.values()) == {"copied by the engine"}
        assert "copies" in stats.notes["binding"]
    else:
        contexts = {"context_per_slot": 6, "rebind": 3}[mode]
        assert stats.zero_copy["input 0 'images'"] == "zero-copy"
        assert stats.notes["binding"] == mode
        assert stats.notes["internal memory"].startswith(f"{contexts} runtime contexts of ")
    assert stats.notes["cores"] == "0, 1, 2"


@pytest.mark.parametrize("preset", ["mixed", "wide", "half", "yolo", "centerface"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dequantize", [True, False])
async def test_each_layout_and_type(
    preset: str, mode: str, dequantize: bool, tmp_path: Path, standin: Standin
) -> None:
    model = make_model.PRESETS[preset](320 if preset == "yolo" else None)
    path = model.save(tmp_path / "model.rknn")
    rng = np.random.default_rng(1)
    options = {**MODES[mode], "dequantize": dequantize}
    opening = pipeline.Executor.open(
        path, engine="rknn", library=standin.path, contexts="auto", options=options
    )
    async with opening as executor, executor.ring(4) as ring:
        for _ in range(6):
            async with ring.slot() as slot:
                inputs = []
                for i, spec in enumerate(executor.inputs):
                    real = spec.dtype.kind == "f"
                    low = 0 if spec.dtype == np.uint8 else -100
                    made: Array = (
                        (rng.standard_normal(spec.shape) * 5).astype(spec.dtype)
                        if real
                        else rng.integers(low, 100, spec.shape).astype(spec.dtype)
                    )
                    slot.inputs[i][...] = made
                    inputs.append(np.moveaxis(made, -1, 1) if spec.layout == "NHWC" else made)
                await executor.run(slot)
                wanted = model.run(inputs)
                for i, (output, raw) in enumerate(zip(model.outputs, wanted, strict=True)):
                    quantised = output.qnt != "none"
                    want = output.real(raw) if dequantize and quantised else raw
                    assert slot.outputs[i].dtype == want.dtype
                    assert np.array_equal(slot.outputs[i], want), output.name
                    told = executor.outputs[i].quantization
                    assert (told is None) == (dequantize or not quantised)
                    if told is not None:
                        assert (told.scale, told.zero_point) == (
                            float(np.float32(output.step)),
                            output.zero,
                        )


async def test_shapes_change_while_open(tmp_path: Path, standin: Standin) -> None:
    model = make_model.PRESETS["dynamic"](None)
    path = model.save(tmp_path / "dynamic.rknn")
    opening = pipeline.Executor.open(
        path, engine="rknn", library=standin.path, contexts=2, input_shape=(1, 32, 32, 3)
    )
    async with opening as executor, executor.ring(4) as ring:
        for shape, size in ((1, 32), (0, 64), (2, 16), (0, 64)):
            await executor.reshape((1, size, size, 3))
            assert executor.inputs[0].shape == (1, size, size, 3)
            for image in _images(size, 6):
                async with ring.slot() as slot:
                    slot.inputs[0][0] = image
                    await executor.run(slot)
                    assert np.array_equal(slot.outputs[0], _expected(model, image, shape)[0])
        async with ring.slot() as slot:
            slot.inputs[0][...] = 0
            with pytest.raises(SlotStateError, match=r"slot \d is filling"):
                await executor.reshape((1, 16, 16, 3))


async def test_a_camera_buffer_is_bound(tmp_path: Path, tiny: Model, standin: Standin) -> None:
    image = _images(count=1)[0]
    descriptor = os.memfd_create("camera")
    os.write(descriptor, image.tobytes())
    opening = pipeline.Executor.open(
        tmp_path / "tiny.rknn",
        engine="rknn",
        library=standin.path,
        options={"binding": "rebind"},
    )
    async with opening as executor, executor.ring(2) as ring:
        camera = executor.import_dmabuf(0, descriptor)
        os.close(descriptor)
        async with ring.slot() as slot:
            report = await executor.run(slot, {0: camera})
            assert report.inputs == ("bound",)
            assert np.array_equal(slot.outputs[0], _expected(tiny, image)[0])
        del camera


async def test_a_failed_run_names_core_and_driver(
    tmp_path: Path, tiny: Model, standin: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_RKNN_FAIL_RUN", "3")
    opening = pipeline.Executor.open(
        tmp_path / "tiny.rknn", engine="rknn", library=standin.path, contexts=1
    )
    image = _images(count=1)[0]
    async with opening as executor, executor.ring(2) as ring:
        async with ring.slot() as slot:
            slot.inputs[0][0] = image
            with pytest.raises(RunError, match=r"core 0 .*driver 0\.9\.8.*RKNN_ERR_FAIL \(-1\)"):
                await executor.run(slot)
        async with ring.slot() as slot:
            slot.inputs[0][0] = image
            await executor.run(slot)
            assert np.array_equal(slot.outputs[0], _expected(tiny, image)[0])


async def test_settings_that_cannot_be(tmp_path: Path, tiny: Model, library: Path) -> None:
    path = tmp_path / "tiny.rknn"
    for settings, place in (
        ({"device": "CPU"}, "device"),
        ({"options": {"binding": "twice"}}, "options.binding"),
        ({"options": {"cores": [3]}}, "options.cores"),
        ({"image": pipeline.ImageInput(mean=(1.0,))}, "image.mean"),
        ({"image": pipeline.ImageInput("rgb")}, "image"),
        ({"contexts": 0}, "contexts"),
    ):
        with pytest.raises(ConfigError, match=f"^{place}"):
            await pipeline.Executor.open(path, engine="rknn", library=str(library), **settings)


def test_devices(tmp_path: Path, library: Path) -> None:
    version, devices = rknn.list_devices(str(library))
    assert version
    assert devices == rknn._find_npu(Path("/"))
    tree = tmp_path / "proc/device-tree"
    tree.mkdir(parents=True)
    (tree / "compatible").write_bytes(b"radxa,rock-5b\0rockchip,rk3588\0")
    driver = tmp_path / "sys/kernel/debug/rknpu"
    driver.mkdir(parents=True)
    (driver / "version").write_text("RKNPU driver: v0.9.8\n")
    assert rknn._find_npu(tmp_path) == [("NPU", "RK3588, driver v0.9.8")]
    with pytest.raises(EngineNotInstalledError, match="no such library"):
        rknn.list_devices(str(tmp_path / "librknnrt.so"))
    other = tmp_path / "libother.so"
    other.write_bytes(b"not a library")
    with pytest.raises(EngineNotInstalledError, match=r"libother\.so: cannot open"):
        rknn.find_library(str(other))


def _command(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-m", "pipeline", str(ROOT / "configs/rk3588.yaml"), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "RKNN_MODEL": "", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_shipped_configuration(tmp_path: Path, library: Path) -> None:
    ended = _command(
        tmp_path,
        *("--set", f"model.library={library}", "--frames", "60", "--summary", "s.json"),
    )
    assert ended.returncode == 0, ended.stderr
    assert "stand-in: " not in ended.stderr
    summary = json.loads((tmp_path / "s.json").read_text())
    assert summary["results"] == 60
    assert summary["driver_allocations"]["at_start"] == summary["driver_allocations"]["at_end"]
    assert summary["notes"]["binding"] == "context_per_slot"
    assert summary["notes"]["internal memory"].startswith("6 runtime contexts of ")
    assert summary["zero_copy"]["input 0 'input.1'"] == "zero-copy"
    assert "context_per_slot" in ended.stderr


def test_the_shipped_model_is_the_one_that_is_described() -> None:
    shipped = ROOT / "native/tests/vendor/rknn/centerface_for_the_standin.rknn"
    assert shipped.read_bytes() == make_model.PRESETS["centerface"](None).to_bytes()


@pytest.mark.parametrize("named", [True, False])
def test_without_a_library(named: bool, tmp_path: Path, tiny: Model) -> None:
    ended = _command(tmp_path, RKNN_MODEL=str(tmp_path / "tiny.rknn") if named else "")
    assert ended.returncode == 4
    assert "Traceback" not in ended.stderr
    assert "Rockchip's runtime is not installed: put librknnrt.so" in ended.stderr


def test_colors_are_swapped_for_the_model(tmp_path: Path, tiny: Model, standin: Standin) -> None:
    image = _images(count=1)[0]

    async def frames() -> AsyncIterator[Array]:
        yield image

    async def main(color: str) -> Array:
        config = {
            "model": {
                "path": str(tmp_path / "tiny.rknn"),
                "engine": "rknn",
                "library": standin.path,
            },
            "preprocess": {"resize": "stretch", "color": color},
        }
        async with pipeline.Pipeline(config, frames=frames()) as running:
            async for result in running:
                return result.outputs[0].array.copy()
        raise AssertionError("no result")

    assert np.array_equal(asyncio.run(main("bgr")), _expected(tiny, image)[0])
    assert np.array_equal(asyncio.run(main("rgb")), _expected(tiny, image[..., ::-1])[0])
