"""The native resizers against OpenCV's, and what they refuse."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from pipeline import ConfigError
from pipeline._native import BgrResizer, PlanesResizer
from pipeline.memory.frame import FrameFormat, Image
from pipeline.memory.i420 import Matrix, Order, weights
from pipeline.preprocess.preprocessor import make_resizer
from pipeline.preprocess.resize import Area
from pipeline.preprocess.resize_opencv import make_opencv_resizer


def photo(width: int, height: int) -> Image:
    coarse = np.random.default_rng(3).integers(40, 216, (12, 16, 3), np.uint8)
    return np.asarray(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC), np.uint8)


SIZES = [(640, 480, 320, 240), (1280, 720, 320, 320), (322, 242, 300, 222), (64, 48, 65, 47)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("order", ["bgr", "rgb"])
def test_bgr_is_resized_as_opencv_resizes_it(size: tuple[int, int, int, int], order: Order) -> None:
    width, height, *target = size
    area = Area(slice(height // 4, height), slice(2, width - 8), *target)
    into = np.zeros((target[1], target[0], 3), np.uint8)
    resized = make_resizer(FrameFormat(width, height), area, order, "linear").resize(
        photo(width, height), into
    )
    by_opencv = make_opencv_resizer(FrameFormat(width, height), area, order, "linear")
    expected = by_opencv.resize(photo(width, height), into.copy())
    assert resized is into
    assert np.abs(resized.astype(int) - expected).max() <= 2


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("matrix", "full_range"), [("601", False), ("709", True)])
def test_planes_are_resized_as_opencv_resizes_them(
    size: tuple[int, int, int, int], matrix: Matrix, full_range: bool
) -> None:
    width, height, *target = size
    form = FrameFormat(width, height, pixels="i420", matrix=matrix, full_range=full_range)
    area = Area(slice(0, height), slice(0, width), *target)
    pixels = np.asarray(cv2.cvtColor(photo(width, height), cv2.COLOR_BGR2YUV_I420), np.uint8)
    into = np.zeros((target[1], target[0], 3), np.uint8)
    resized = make_resizer(form, area, "rgb", "linear").resize(pixels, into)
    by_opencv = make_opencv_resizer(form, area, "rgb", "linear")
    expected = by_opencv.resize(pixels, into.copy())
    assert resized is into
    apart = np.abs(resized.astype(int) - expected)
    assert apart.max() <= 5
    assert apart.mean() <= 1


def test_arrays_that_do_not_fit_are_named() -> None:
    resizer = BgrResizer(slice(0, 40), slice(0, 60), 20, 30)
    frame, into = np.zeros((40, 60, 3), np.uint8), np.zeros((20, 30, 3), np.uint8)
    resizer.resize(frame, into)
    with pytest.raises(ConfigError, match=r"^frame: .*got uint8 \(39, 60, 3\)"):
        resizer.resize(frame[:39], into)
    with pytest.raises(ConfigError, match=r"^frame: .*got int16 \(40, 60, 3\)"):
        resizer.resize(frame.astype(np.int16), into)
    with pytest.raises(ConfigError, match=r"^into: needed uint8 \(20, 30, 3\)"):
        resizer.resize(frame, into[:, :29])
    with pytest.raises(ConfigError, match=r"^into: "):
        resizer.resize(frame, into[:, ::-1])
    into.flags.writeable = False
    with pytest.raises(ValueError, match="writeable"):
        resizer.resize(frame, into)


def test_planes_that_do_not_fit_are_named() -> None:
    of_values = weights("601", False, "bgr")[:, :3].tolist()
    resizer = PlanesResizer(slice(0, 40), slice(0, 60), 20, 30, of_values, False)
    frame, into = np.zeros((60, 60), np.uint8), np.zeros((20, 30, 3), np.uint8)
    resizer.resize(frame, into)
    for wrong in (frame[:57], frame[:, :58], frame[..., None], frame[:59]):
        with pytest.raises(ConfigError, match=r"^frame: needed uint8 I420 .*, got uint8 \("):
            resizer.resize(wrong, into)
    with pytest.raises(ConfigError, match="odd pixel"):
        PlanesResizer(slice(1, 40), slice(0, 60), 20, 30, of_values, False)
