"""Decoded frames in frame buffers: as planes where they can be, and in the right colors."""

from __future__ import annotations

import tracemalloc
from typing import Any

import av
import cv2
import numpy as np
import pytest
from av.video.reformatter import Colorspace, VideoReformatter

from pipeline.errors import FormatChangedError
from pipeline.memory.frame import FrameFormat, FramePool, Image
from pipeline.sources.pyav_frames import FrameWriter, format_of

pytestmark = pytest.mark.usefixtures("small_planes")

WIDTH, HEIGHT = 322, 242  # a quarter of the height is no whole number, and rows are padded
SPACES = {"601": Colorspace.ITU601, "709": Colorspace.ITU709}


def photo() -> Image:
    coarse = np.random.default_rng(3).integers(40, 216, (8, 10, 3), np.uint8)
    return np.asarray(cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC), np.uint8)


def make_image(pixels: str, matrix: str = "601", full_range: bool = False) -> av.VideoFrame:
    """A frame as a decoder gives it, made by swscale."""
    made = VideoReformatter().reformat(
        av.VideoFrame.from_ndarray(photo(), format="bgr24"),
        format=pixels,
        dst_colorspace=SPACES[matrix],
        dst_color_range=2 if full_range else 1,
    )
    made.colorspace = 1 if matrix == "709" else 5
    made.color_range = 2 if full_range else 1
    return made


def shown(writer: FrameWriter, given: av.VideoFrame) -> Image:
    frame = FramePool(format_of(given), 1).try_acquire()
    assert frame is not None
    writer.write(given, frame.pixels)
    return frame.view()


@pytest.mark.parametrize("matrix", ["601", "709"])
@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("pixels", ["yuv420p", "nv12"])
def test_planes_are_kept_and_show_the_declared_colors(
    matrix: Any, full_range: bool, pixels: str
) -> None:
    given = make_image(pixels, matrix, full_range)
    form = format_of(given)
    assert form == FrameFormat(WIDTH, HEIGHT, pixels="i420", matrix=matrix, full_range=full_range)
    apart = np.abs(shown(FrameWriter("x"), given).astype(int) - photo())
    assert apart.mean() < 2
    assert np.percentile(apart, 99) <= 8
    other = "709" if matrix == "601" else "601"
    given.colorspace = 1 if other == "709" else 5
    wrong = np.abs(shown(FrameWriter("x"), given).astype(int) - photo())
    assert wrong.mean() > 2 * apart.mean()


def test_the_planes_are_the_decoders_own() -> None:
    given = make_image("yuv420p")
    form = format_of(given)
    buffer = np.zeros(form.shape, np.uint8)
    FrameWriter("x").write(given, buffer)
    np.testing.assert_array_equal(buffer, given.to_ndarray(format="yuv420p"))
    pairs = make_image("nv12")
    FrameWriter("x").write(pairs, buffer)
    np.testing.assert_array_equal(buffer, pairs.to_ndarray(format="yuv420p"))


def test_the_old_name_of_full_range_is_full_range() -> None:
    given = make_image("yuvj420p", full_range=True)
    given.color_range = 0
    assert format_of(given).full_range


@pytest.mark.parametrize("pixels", ["yuv422p", "yuv444p", "yuv420p10le", "gray", "rgb24", "gbrp"])
def test_other_pixels_become_bgr(pixels: str) -> None:
    given = VideoReformatter().reformat(
        av.VideoFrame.from_ndarray(photo(), format="bgr24"), format=pixels
    )
    assert format_of(given) == FrameFormat(WIDTH, HEIGHT)
    image = shown(FrameWriter("x"), given)
    expected = photo() if pixels != "gray" else cv2.cvtColor(photo(), cv2.COLOR_BGR2GRAY)[..., None]
    assert np.abs(image.astype(int) - expected).mean() < 2


@pytest.mark.parametrize("size", [(321, 242), (322, 241), (1, 1)])
def test_odd_sizes_become_bgr(size: tuple[int, int]) -> None:
    given = av.VideoFrame(*size, "yuv420p")
    assert format_of(given) == FrameFormat(*size)
    assert shown(FrameWriter("x"), given).shape == (size[1], size[0], 3)


def test_a_matrix_that_is_not_known_becomes_bgr() -> None:
    given = make_image("yuv420p")
    given.colorspace = 9  # BT.2020
    assert format_of(given) == FrameFormat(WIDTH, HEIGHT)


def test_planes_that_are_not_wanted_become_bgr() -> None:
    given, writer = make_image("yuv420p"), FrameWriter("x", planes=False)
    buffer = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    writer.write(given, buffer)
    assert format_of(given, planes=False) == FrameFormat(WIDTH, HEIGHT)
    assert np.abs(buffer.astype(int) - photo()).mean() < 3


def test_small_images_become_bgr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert format_of(make_image("yuv420p")) == FrameFormat(WIDTH, HEIGHT)
    assert format_of(av.VideoFrame(480, 360, "yuv420p")).pixels == "i420"


def test_a_change_of_size_pixels_or_colors_is_told_once() -> None:
    writer = FrameWriter("x")
    first = make_image("yuv420p")
    buffer = np.zeros(format_of(first).shape, np.uint8)
    writer.format = format_of(first)._replace(fps=25)
    writer.write(first, buffer)
    for given, told in (
        (make_image("yuv420p", "709"), r"x: .* i420 BT\.709 limited range, needed .*BT\.601"),
        (make_image("yuv420p", "709", True), "full range, needed .*limited"),
        (make_image("yuv444p"), "322x242 bgr, needed 322x242 i420"),
        (av.VideoFrame(64, 48, "yuv420p"), "64x48 i420 .*needed 322x242 bgr"),
    ):
        with pytest.raises(FormatChangedError, match=told) as caught:
            writer.write(given, buffer)
        assert caught.value.format == format_of(given)
        buffer = np.zeros(caught.value.format.shape, np.uint8)
        writer.write(given, buffer)


def test_keeping_planes_costs_no_memory() -> None:
    writer, given = FrameWriter("x"), make_image("yuv420p")
    buffer = np.zeros(format_of(given).shape, np.uint8)
    writer.write(given, buffer)
    tracemalloc.start()
    try:
        for _ in range(3):
            writer.write(given, buffer)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4096
