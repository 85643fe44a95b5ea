"""Preprocess: where the frame goes, what is written and what is not allocated."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import ConfigError, PipelineError
from pipeline.frame import FrameFormat, Image
from pipeline.preprocess import Preprocessor, PreprocessSettings


@dataclass(frozen=True)
class Spec:
    """What preprocess reads of a tensor spec."""

    name: str = "image"
    dtype: Any = np.uint8
    shape: tuple[int, ...] = (1, 320, 320, 3)
    layout: str = "NHWC"
    row_stride: int = 0


def opened(
    frame: tuple[int, int] = (176, 144), shape: tuple[int, ...] = (1, 320, 320, 3), **more: Any
) -> Preprocessor:
    preprocess = Preprocessor(PreprocessSettings(**more))
    preprocess.open(FrameFormat(*frame), cast(Any, Spec(shape=shape)))
    return preprocess


def noise(width: int, height: int) -> Image:
    return np.random.default_rng(5).integers(0, 256, (height, width, 3), np.uint8)


def strided(shape: tuple[int, int, int, int], row: int, pixel: int = 0) -> npt.NDArray[np.uint8]:
    """A view with ``row`` bytes from row to row, as a driver with aligned rows gives it."""
    memory = np.full(shape[1] * row, 7, np.uint8)
    return np.lib.stride_tricks.as_strided(
        memory, shape, (shape[1] * row, row, pixel or shape[3], 1)
    )


@pytest.mark.parametrize("row", [0, 1024, 961])
def test_letterbox_writes_the_frame_centred_and_the_padding(row: int) -> None:
    preprocess = opened(pad=99)
    image = noise(176, 144)
    image.flags.writeable = False
    target = strided((1, 320, 320, 3), row or 960)
    preprocess.process(image, target, 0)
    np.testing.assert_array_equal(target[0, 29:291], cv2.resize(image, (320, 262)))
    assert (target[0, :29] == 99).all()
    assert (target[0, 291:] == 99).all()
    assert preprocess.copies == 0
    base = target.base
    assert base is not None
    # What lies between the rows is not ours.
    memory = np.lib.stride_tricks.as_strided(
        target[0, :, :1, 0], (320, row or 960), (row or 960, 1)
    )
    assert (memory[:, 960:] == 7).all()


def test_padding_is_written_once_for_each_slot() -> None:
    preprocess = opened(pad=99)
    targets = [np.zeros((1, 320, 320, 3), np.uint8) for _ in range(2)]
    for _ in range(2):
        for slot, target in enumerate(targets):
            preprocess.process(noise(176, 144), target, slot)
            assert (target[0, 0] == (99 if target[0, 0, 0, 0] else 0)).all()
            target[0, 0] = 0  # if it were written again this would not stay
    for slot, target in enumerate(targets):
        assert (target[0, 0] == 0).all()
        preprocess.open(FrameFormat(176, 144), cast(Any, Spec()))
        preprocess.process(noise(176, 144), target, slot)
        assert (target[0, 0] == 99).all()


def test_stretch_and_same_size() -> None:
    image, target = noise(176, 144), np.zeros((1, 100, 200, 3), np.uint8)
    opened(shape=target.shape, resize="stretch").process(image, target, 0)
    np.testing.assert_array_equal(target[0], cv2.resize(image, (200, 100)))
    same = np.zeros((1, 144, 176, 3), np.uint8)
    opened(shape=same.shape).process(image, same, 0)
    np.testing.assert_array_equal(same[0], image)


def test_crop_takes_the_centre() -> None:
    image, target = noise(400, 100), np.zeros((1, 100, 100, 3), np.uint8)
    preprocess = opened((400, 100), target.shape, resize="crop")
    preprocess.process(image, target, 0)
    np.testing.assert_array_equal(target[0], image[:, 150:250])
    assert preprocess.mapping == (1, 1, -150, 0, 400, 100)


@pytest.mark.parametrize(
    ("name", "flag"),
    [("linear", cv2.INTER_LINEAR), ("area", cv2.INTER_AREA), ("nearest", cv2.INTER_NEAREST)],
)
def test_interpolation(name: str, flag: int) -> None:
    image, target = noise(640, 640), np.zeros((1, 64, 64, 3), np.uint8)
    opened((640, 640), target.shape, interpolation=name).process(image, target, 0)
    np.testing.assert_array_equal(target[0], cv2.resize(image, (64, 64), interpolation=flag))


@pytest.mark.parametrize("row", [320, 512])
def test_grey_models(row: int) -> None:
    preprocess = opened(shape=(1, 320, 320, 1), mean=(1.0,))
    image, target = noise(176, 144), strided((1, 320, 320, 1), row)
    preprocess.process(image, target, 3)
    grey = cv2.cvtColor(cv2.resize(image, (320, 262)), cv2.COLOR_BGR2GRAY)
    np.testing.assert_array_equal(target[0, 29:291, :, 0], grey)
    assert (target[0, :29] == 114).all()
    assert preprocess.copies == 0


@pytest.mark.parametrize("channels", [1, 3])
def test_a_view_that_opencv_cannot_write_is_filled_by_a_copy(channels: int) -> None:
    shape = (1, 64, 48, channels)
    target, plain = strided(shape, 256, pixel=4), np.zeros(shape, np.uint8)
    preprocess = opened(shape=shape)
    for _ in range(2):
        preprocess.process(noise(176, 144), target, 0)
    preprocess.process(noise(176, 144), plain, 1)
    np.testing.assert_array_equal(target, plain)
    assert preprocess.copies == 2


@pytest.mark.parametrize("resize", ["letterbox", "stretch", "crop"])
@pytest.mark.parametrize("channels", [1, 3])
def test_nothing_of_frame_size_is_allocated(resize: str, channels: int) -> None:
    preprocess = opened((1280, 720), (1, 640, 640, channels), resize=resize)
    image, target = noise(1280, 720), strided((1, 640, 640, channels), 2048)
    preprocess.process(image, target, 0)
    tracemalloc.start()
    try:
        for _ in range(3):
            preprocess.process(image, target, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000


@given(
    frame=st.tuples(st.integers(1, 4000), st.integers(1, 4000)),
    size=st.tuples(st.integers(1, 900), st.integers(1, 900)),
    resize=st.sampled_from(["letterbox", "stretch", "crop"]),
)
@settings(max_examples=200, deadline=None)
def test_mapping_places_the_frame_and_maps_back(
    frame: tuple[int, int], size: tuple[int, int], resize: str
) -> None:
    mapping = opened(frame, (1, size[1], size[0], 3), resize=resize).mapping
    corners = np.array([(0, 0), frame], np.float32)
    scale, offset = np.array(mapping[:2]), np.array(mapping[2:4])
    placed = corners * scale + offset
    if resize == "letterbox":
        assert (placed[0] >= 0).all()
        assert (placed[1] <= np.array(size) + 1e-3).all()
        assert (np.abs(np.array(size) - placed[1] - placed[0]) <= 1.001).all()  # centred
    else:
        assert (placed[0] <= 1e-3).all()
        assert (placed[1] >= np.array(size) - 1e-3).all()
    inside = np.array(frame, np.float32) * 0.25
    back = mapping.to_frame((inside * scale + offset).astype(np.float32))
    np.testing.assert_allclose(back, inside, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (Spec(dtype=np.float32), r"input 'image' is float32 .* needs uint8"),
        (Spec(dtype="int8"), "is int8"),
        (Spec(shape=(1, 3, 320, 320), layout="NCHW"), r"\[1, 3, 320, 320\] NCHW; a picture needs"),
        (Spec(shape=(1, 320, 320, 4)), "3 or 1"),
        (Spec(shape=(320, 320, 3), layout="HWC"), "a picture needs"),
        (Spec(shape=(1, 0, 320, 3)), "every size has to be known"),
        (Spec(shape=(1, 16, 16, 1)), r"preprocess\.mean: .* needs 1 or 1 values, got 3"),
    ],
)
def test_inputs_that_are_no_picture(spec: Spec, told: str) -> None:
    preprocess = Preprocessor(PreprocessSettings(mean=(1.0, 2.0, 3.0)))
    with pytest.raises(ConfigError, match=told):
        preprocess.open(FrameFormat(176, 144), cast(Any, spec))


def test_wrong_use_is_named() -> None:
    preprocess = Preprocessor(PreprocessSettings())
    with pytest.raises(PipelineError, match="not open"):
        _ = preprocess.mapping
    preprocess = opened()
    with pytest.raises(PipelineError, match=r"got \(10, 10, 3\)"):
        preprocess.process(noise(10, 10), np.zeros((1, 320, 320, 3), np.uint8), 0)
    with pytest.raises(PipelineError, match=r"\(1, 32, 32, 3\)"):
        preprocess.process(noise(176, 144), np.zeros((1, 32, 32, 3), np.uint8), 0)


@pytest.mark.parametrize(
    "bad",
    [{"pad": 256}, {"mean": [float("nan")]}, {"scale": [0.0]}, {"resize": "fit"}, {"padd": 1}],
)
def test_bad_settings(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        PreprocessSettings(**bad)
