"""The stand-in, driven by the package ztu_somemodelruntime_ez_rknn_async.

That client was written against the vendor's library, so what it calls is how the interface is used.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_model import PRESETS, Model
from standin import Standin

__all__: list[str] = []

ez: Any = pytest.importorskip(
    "ztu_somemodelruntime_ez_rknn_async",
    reason="needs ztu_somemodelruntime_ez_rknn_async==0.11.0 in an environment of its own",
)

# It recommends a newer runtime than the one that the stand-in says to be.
pytestmark = pytest.mark.filterwarnings("ignore:RKNN API version")

FRAMES = 60


@pytest.fixture(autouse=True)
def runtime(strict: Standin, monkeypatch: pytest.MonkeyPatch) -> Standin:
    """Makes the client open the stand-in; sessions must be gone when the test ends."""
    monkeypatch.setenv("ZTU_RKNPU2_RUNTIME_LIBRARY", strict.path)
    return strict


def made(preset: str) -> Model:
    """A model of its usual size."""
    return PRESETS[preset](None)


def session(model: Model, folder: Path, **options: Any) -> Any:
    """The client's session of the model."""
    path = model.save(folder / "model.rknn")
    return ez.InferenceSession(str(path), provider_options=[ez.make_provider_options(**options)])


def inputs(model: Model, seed: int = 0) -> list[Any]:
    """NCHW images, and real values for what is no image."""
    rng = np.random.default_rng(seed)
    made = []
    for tensor in model.inputs:
        shape = tensor.shapes[0]
        if len(shape) == 4:
            made.append(rng.integers(0, 256, shape, np.uint8))
        else:
            made.append(rng.normal(0, 4, shape).astype(np.float32))
    return made


def expected(model: Model, values: list[Any]) -> list[Any]:
    """The real outputs, by numpy."""
    return model.real(model.run(values))


def rows(image: Any) -> Any:
    """NCHW to NHWC."""
    return np.ascontiguousarray(image.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("preset", ["tiny", "mixed", "wide", "half", "centerface"])
def test_runs_every_kind_of_tensor(preset: str, tmp_path: Path) -> None:
    model = made(preset)
    values = inputs(model)
    opened = session(model, tmp_path, layout="original")
    names = [tensor.name for tensor in model.inputs]
    outputs = opened.run(None, dict(zip(names, values, strict=True)))
    del opened
    gc.collect()
    for tensor, got, wanted in zip(model.outputs, outputs, expected(model, values), strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=tensor.name)


def test_runs_a_dynamic_model(tmp_path: Path) -> None:
    model = made("dynamic")
    values = inputs(model)
    opened = session(model, tmp_path, layout="nhwc")
    (output,) = opened.run(None, {"images": rows(values[0])})
    del opened
    gc.collect()
    np.testing.assert_array_equal(output, expected(model, values)[0])


def test_runs_frames_on_three_cores(runtime: Standin, tmp_path: Path) -> None:
    model = made("tiny")
    images = [inputs(model, seed)[0] for seed in range(FRAMES)]
    before = runtime.stats()
    opened = session(model, tmp_path, layout="nhwc", schedule=[0, 1, 2])
    assert runtime.stats()["live_contexts"] - before["live_contexts"] == 3
    assert runtime.stats()["live_weights"] - before["live_weights"] == 1
    results: dict[int, Any] = {}
    order: list[int] = []
    done = threading.Event()

    def receive(outputs: list[Any], number: int, error: str | None) -> None:
        order.append(number)
        results[number] = error or outputs[0]
        if len(order) == FRAMES:
            done.set()

    for number, image in enumerate(images):
        opened.run_async(None, {"images": rows(image)}, receive, number)
    assert done.wait(60)
    del opened
    gc.collect()
    assert order == list(range(FRAMES))
    for number, image in enumerate(images):
        np.testing.assert_array_equal(results[number], expected(model, [image])[0])


def content_of(value: Any, layout: str) -> Any:
    """An int8 output of the model "tiny" in logical order.

    The client's own `numpy()` is not for blocks of channels: it writes beyond the array it makes.
    """
    if layout == "nhwc":
        return value.numpy()
    value.sync_from_device()
    size = value.memory_info()["size"]
    blocks = np.frombuffer(ctypes.string_at(value.data_ptr(), size), np.int8)
    return blocks.reshape(8, 8, 16).transpose(2, 0, 1)[None, :5]


@pytest.mark.parametrize("layout", ["nhwc", "native"])
def test_binds_driver_memory(layout: str, runtime: Standin, tmp_path: Path) -> None:
    model = made("tiny")
    opened = session(model, tmp_path, layout="nhwc", zero_copy_layout=layout)
    content = np.zeros((1, 32, 32, 3), np.int8)
    value = ez.OrtValue.ortvalue_from_numpy(
        content, "rknpu2", session=opened, name="images", io_kind="input", layout="native"
    )
    binding = opened.io_binding()
    binding.bind_ortvalue_input("images", value)
    binding.bind_output("scores", "rknpu2", layout="native")
    before = runtime.stats()
    for seed in range(3):
        content = np.random.default_rng(seed).integers(-128, 128, content.shape, np.int8)
        value.update_inplace(content)
        opened.run_with_iobinding(binding)
        got = content_of(binding.get_outputs()[0], layout)
        raw = np.ascontiguousarray(content.transpose(0, 3, 1, 2))
        np.testing.assert_array_equal(got, model.run([raw])[0])
    after = runtime.stats()
    assert after["copies"] == before["copies"]
    assert after["binds"] > before["binds"]
    del value, binding, opened
    gc.collect()


def test_binds_a_descriptor(tmp_path: Path) -> None:
    model = made("tiny")
    opened = session(model, tmp_path, layout="nhwc", zero_copy_layout="nhwc")
    size = 32 * 32 * 3
    fd = os.memfd_create("image")
    os.ftruncate(fd, mmap.PAGESIZE)
    with mmap.mmap(fd, mmap.PAGESIZE) as mapping:
        memory = (ctypes.c_char * mmap.PAGESIZE).from_buffer(mapping)
        content = np.random.default_rng(1).integers(-128, 128, (1, 32, 32, 3), np.int8)
        ctypes.memmove(memory, content.tobytes(), size)
        value = ez.OrtValue.ortvalue_from_dmabuf(
            fd,
            content.shape,
            np.int8,
            size=size,
            virt_addr=ctypes.addressof(memory),
            session=opened,
            name="images",
            io_kind="input",
        )
        binding = opened.io_binding()
        binding.bind_ortvalue_input("images", value)
        binding.bind_output("scores", "rknpu2", layout="native")
        opened.run_with_iobinding(binding)
        got = binding.get_outputs()[0].numpy().copy()
        del value, binding, opened
        gc.collect()
        del memory
    os.close(fd)
    raw = np.ascontiguousarray(content.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(got, model.run([raw])[0])
