"""Preprocess: where the frame goes, what is written and what is not allocated."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import ConfigError, PipelineError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.memory.i420 import Matrix
from pipeline.memory.i420_to_bgr import BgrConverter
from pipeline.preprocess.preprocessor import Preprocessor, PreprocessSettings

MATRICES: tuple[Matrix, ...] = ("601", "709")
COLORS = [
    pytest.param(
        FrameFormat(322, 242, pixels="i420", matrix=matrix, full_range=full),
        id=f"{matrix}-{'full' if full else 'limited'}",
    )
    for matrix, full in product(MATRICES, (False, True))
]


@dataclass(frozen=True)
class Spec:
    """What preprocess reads of a tensor spec."""

    name: str = "image"
    dtype: Any = np.uint8
    shape: tuple[int, ...] = (1, 320, 320, 3)
    layout: str = "NHWC"
    row_stride: int = 0
    strides: tuple[int, ...] = (0, 0, 3, 1)


def opened(
    frame: tuple[int, int] = (176, 144), shape: tuple[int, ...] = (1, 320, 320, 3), **more: Any
) -> Preprocessor:
    preprocess = Preprocessor(PreprocessSettings(**more))
    preprocess.open(FrameFormat(*frame), cast(Any, Spec(shape=shape)))
    return preprocess


def noise(width: int, height: int) -> Image:
    return np.random.default_rng(5).integers(0, 256, (height, width, 3), np.uint8)


def photo(width: int, height: int) -> Image:
    """Soft gradients and edges in moderate colors, as frames of a camera have."""
    random = np.random.default_rng(3)
    coarse = random.integers(40, 216, (height // 40 + 2, width // 40 + 2, 3), np.uint8)
    soft = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    grain = random.integers(-6, 7, (height, width, 1))
    return np.asarray(np.clip(soft.astype(int) + grain, 0, 255), np.uint8)


def planes_from(image: Image, form: FrameFormat) -> Image:
    """I420 by the format's matrix and range, computed in floating point."""
    red_share, blue_share = (0.299, 0.114) if form.matrix == "601" else (0.2126, 0.0722)
    blue, green, red = (image[..., i].astype(float) for i in range(3))
    y = red_share * red + blue_share * blue + (1 - red_share - blue_share) * green
    u, v = (blue - y) / (2 - 2 * blue_share), (red - y) / (2 - 2 * red_share)
    if not form.full_range:
        y, u, v = 16 + y * 219 / 255, u * 224 / 255, v * 224 / 255
    small = [c.reshape(c.shape[0] // 2, 2, -1, 2).mean((1, 3)) + 128 for c in (u, v)]
    flat = np.concatenate([plane.reshape(-1) for plane in (y, *small)])
    return np.asarray(np.clip(np.rint(flat), 0, 255), np.uint8).reshape(form.shape)


def bgr_of(pixels: Image, form: FrameFormat) -> Image:
    image = np.empty((form.height, form.width, 3), np.uint8)
    BgrConverter(form.width, form.matrix, form.full_range).convert(pixels, image)
    return image


def strided(shape: tuple[int, int, int, int], row: int, pixel: int = 0) -> npt.NDArray[np.uint8]:
    """A view with ``row`` bytes from row to row, as a driver with aligned rows gives it."""
    memory = np.full(shape[1] * row, 7, np.uint8)
    return np.lib.stride_tricks.as_strided(
        memory, shape, (shape[1] * row, row, pixel or shape[3], 1)
    )


def assert_resized(actual: Image, expected: npt.NDArray[Any]) -> None:
    """What we draw is what OpenCV draws, but for rounding twice."""
    apart = np.abs(actual.astype(int) - expected)
    assert apart.max() <= 2
    assert apart.mean() <= 0.5


@pytest.mark.parametrize("row", [0, 1024, 961])
def test_letterbox_writes_the_frame_centred_and_the_padding(row: int) -> None:
    preprocess = opened(pad=99)
    image = noise(176, 144)
    image.flags.writeable = False
    target = strided((1, 320, 320, 3), row or 960)
    preprocess.process(image, target, 0)
    assert_resized(target[0, 29:291], cv2.resize(image, (320, 262)))
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
    assert_resized(target[0], cv2.resize(image, (200, 100)))
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
    expected = cv2.resize(image, (64, 64), interpolation=flag)
    if name == "linear":
        assert_resized(target[0], expected)
    else:
        np.testing.assert_array_equal(target[0], expected)


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
@pytest.mark.parametrize("form", [pytest.param(FrameFormat(1, 1), id="bgr"), *COLORS])
def test_nothing_of_frame_size_is_allocated(resize: Any, channels: int, form: FrameFormat) -> None:
    form = form._replace(width=1280, height=720)
    preprocess = Preprocessor(PreprocessSettings(resize=resize))
    preprocess.open(form, cast(Any, Spec(shape=(1, 640, 640, channels))))
    pixels, target = np.zeros(form.shape, np.uint8), strided((1, 640, 640, channels), 2048)
    preprocess.process(pixels, target, 0)
    tracemalloc.start()
    try:
        for _ in range(3):
            preprocess.process(pixels, target, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4096
    assert preprocess.copies == 0


# --- frames of planes


@pytest.mark.parametrize("form", COLORS)
@pytest.mark.parametrize("resize", ["letterbox", "stretch", "crop"])
@pytest.mark.parametrize("interpolation", ["linear", "area", "nearest"])
@pytest.mark.parametrize("kind", ["bgr", "rgb", "grey"])
def test_planes_give_what_their_image_would(
    form: FrameFormat, resize: Any, interpolation: Any, kind: str
) -> None:
    channels = 1 if kind == "grey" else 3
    pixels = planes_from(photo(form.width, form.height), form)
    targets = []
    for told, frame in ((form, pixels), (FrameFormat(*form[:2]), bgr_of(pixels, form))):
        preprocess = Preprocessor(
            PreprocessSettings(resize=resize, interpolation=interpolation, pad=99),
            swap_colors=kind == "rgb",
        )
        preprocess.open(told, cast(Any, Spec(shape=(1, 150, 160, channels))))
        target = strided((1, 150, 160, channels), 512)
        for _ in range(2):
            preprocess.process(frame, target, 0)
        assert preprocess.copies == 0
        targets.append(target)
    apart = np.abs(targets[0].astype(int) - targets[1])
    # A frame's chroma is in steps of two pixels, resized planes' is not, where it is linear.
    assert apart.mean() <= 1.2
    assert np.percentile(apart, 99) <= 6
    assert apart.max() <= (16 if interpolation == "linear" and kind != "grey" else 3)


def test_a_crop_of_planes_takes_whole_chroma_samples() -> None:
    form = FrameFormat(106, 50, pixels="i420", full_range=True)
    pixels = np.zeros(form.shape, np.uint8)
    pixels[:50] = np.arange(106)
    pixels[50:] = 128
    preprocess = Preprocessor(PreprocessSettings(resize="crop"))
    target = np.zeros((1, 51, 51, 3), np.uint8)
    preprocess.open(form, cast(Any, Spec(shape=target.shape)))
    assert preprocess.mapping == pytest.approx((1.02, 1.02, -28 * 1.02, 0, 106, 50))
    preprocess.process(pixels, target, 0)
    assert (target[0, 0, 0] == 28).all()
    assert (target[0, 0, -1] == 77).all()


@pytest.mark.parametrize("form", COLORS)
def test_a_flat_color_is_exact_but_for_rounding(form: FrameFormat) -> None:
    for color in ((0, 0, 0), (255, 255, 255), (200, 30, 60), (10, 180, 90), (128, 128, 128)):
        image = np.full((form.height, form.width, 3), color, np.uint8)
        pixels = planes_from(image, form)
        assert np.abs(bgr_of(pixels, form).astype(int) - image).max() <= 2
        target = np.zeros((1, 64, 64, 3), np.uint8)
        preprocess = Preprocessor(PreprocessSettings(resize="stretch"))
        preprocess.open(form, cast(Any, Spec(shape=target.shape)))
        preprocess.process(pixels, target, 0)
        assert np.abs(target[0].astype(int) - color).max() <= 2


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("size", [(2, 2), (64, 130), (66, 128), (176, 144), (70, 258)])
def test_whole_images_are_converted_at_any_even_size(
    matrix: Matrix, full_range: bool, size: tuple[int, int]
) -> None:
    form = FrameFormat(*size, pixels="i420", matrix=matrix, full_range=full_range)
    image = np.full((form.height, form.width, 3), (200, 30, 60), np.uint8)
    image[: form.height // 2] = (20, 140, 90)
    edge = form.height // 2 // 2 * 2
    apart = np.abs(bgr_of(planes_from(image, form), form).astype(int) - image)
    assert apart[:edge].max(initial=0) <= 2
    assert apart[edge + 2 :].max(initial=0) <= 2


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
        (Spec(shape=(1, 3, 320, 320), layout="NCHW"), r"\[1, 3, 320, 320\] NCHW; an image needs"),
        (Spec(shape=(1, 320, 320, 4)), "3 or 1"),
        (Spec(shape=(320, 320, 3), layout="HWC"), "an image needs"),
        (Spec(shape=(1, 0, 320, 3)), "every size has to be known"),
        (Spec(shape=(1, 16, 16, 1)), r"^mean: .* needs 1 or 1 values, got 3"),
    ],
)
def test_inputs_that_are_no_image(spec: Spec, told: str) -> None:
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
