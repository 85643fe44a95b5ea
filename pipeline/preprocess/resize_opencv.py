"""The resizers that use OpenCV: other interpolations than linear, and grey models."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from pipeline.memory.frame import FrameFormat, Image
from pipeline.memory.i420 import Order, luma_table, planes_of, weights
from pipeline.preprocess.resize import Area, Interpolation, Resizer

__all__ = ["make_opencv_resizer"]

_FLAGS: dict[Interpolation, int] = {
    "linear": cv2.INTER_LINEAR,
    "area": cv2.INTER_AREA,
    "nearest": cv2.INTER_NEAREST,
}


def make_opencv_resizer(
    form: FrameFormat, area: Area, order: Order, interpolation: Interpolation
) -> Resizer:
    """A resizer for what ``preprocessor.make_resizer`` asks."""
    flag = _FLAGS[interpolation]
    if form.pixels == "bgr":
        return _BgrResizer(area, order, flag)
    if order == "grey" and form.matrix == "601":
        return _LumaResizer(area, form.full_range, flag)
    return _PlanesResizer(area, weights(form.matrix, form.full_range, order), flag)


class _BgrResizer:
    def __init__(self, area: Area, order: Order, interpolation: int) -> None:
        self._part = area[:2]
        self._interpolation = interpolation
        self._code = cv2.COLOR_BGR2GRAY if order == "grey" else cv2.COLOR_BGR2RGB
        # The image before it becomes grey or its colors are swapped.
        self._color: Image | None = None
        if order != "bgr":
            self._color = np.empty((area.height, area.width, 3), np.uint8)

    def resize(self, pixels: Image, into: Image) -> Image:
        part = pixels[self._part]
        if self._color is None:
            return _resize(part, into, self._interpolation)
        color = _resize(part, self._color, self._interpolation)
        return np.asarray(cv2.cvtColor(color, self._code, dst=into), np.uint8)


class _LumaResizer:
    """Grey from Y alone, which BT.601 has in common with OpenCV's grey."""

    def __init__(self, area: Area, full_range: bool, interpolation: int) -> None:
        self._part = area[:2]
        self._interpolation = interpolation
        self._luma = None if full_range else np.empty((area.height, area.width), np.uint8)

    def resize(self, pixels: Image, into: Image) -> Image:
        part = planes_of(pixels).y[self._part]
        if self._luma is None:
            return _resize(part, into, self._interpolation)
        luma = _resize(part, self._luma, self._interpolation)
        return np.asarray(cv2.LUT(luma, luma_table(), dst=into), np.uint8)


class _PlanesResizer:
    """Each plane is resized by itself, so only as many pixels as the model has are converted."""

    def __init__(self, area: Area, weights: npt.NDArray[np.float32], interpolation: int) -> None:
        self._luma = area[:2]
        self._chroma = (_halved(area.rows), _halved(area.columns))
        self._weights = weights
        self._interpolation = interpolation
        self._planes = [np.empty((area.height, area.width), np.uint8) for _ in range(3)]
        self._joined = np.empty((area.height, area.width, 3), np.uint8)

    def resize(self, pixels: Image, into: Image) -> Image:
        y, u, v = planes_of(pixels)
        parts = (y[self._luma], u[self._chroma], v[self._chroma])
        for part, scratch in zip(parts, self._planes, strict=True):
            _resize(part, scratch, self._interpolation)
        cv2.merge(self._planes, dst=self._joined)
        return np.asarray(cv2.transform(self._joined, self._weights, dst=into), np.uint8)


def _halved(part: slice) -> slice:
    return slice(part.start // 2, part.stop // 2)


def _resize(image: Image, into: Image, interpolation: int) -> Image:
    made = cv2.resize(image, into.shape[1::-1], dst=into, interpolation=interpolation)
    return np.asarray(made, np.uint8)
