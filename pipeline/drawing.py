"""Drawing a part of a frame at the model's size: from BGR, or plane by plane from I420.

Colours that are interpolated linearly, the usual case, are drawn by the native core, which takes
less time than OpenCV and allocates nothing; the others by OpenCV.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from pipeline._native import BgrDrawer, PlanesDrawer
from pipeline.colour import Order, luma_table, planes_of, weights
from pipeline.frame import FrameFormat, Image

__all__ = ["Area", "Drawer", "NativeDrawer", "make_drawer"]


class Area(NamedTuple):
    """``rows`` and ``columns`` of the frame are drawn ``width`` x ``height`` pixels large.

    Of I420 they begin and end at even numbers.
    """

    rows: slice
    columns: slice
    width: int
    height: int


class Drawer(Protocol):
    """Draws frames of one format into images of one size."""

    def draw(self, pixels: Image, into: Image) -> Image:
        """Draw into ``into``; what is returned is another array where OpenCV made one."""


def make_drawer(form: FrameFormat, area: Area, order: Order, interpolation: int) -> Drawer:
    """A drawer of images (height, width, 3), or (height, width) where ``order`` is grey."""
    if order != "grey" and interpolation == cv2.INTER_LINEAR:
        return _native_drawer(form, area, order)
    if form.pixels == "bgr":
        return _BgrDrawer(area, order, interpolation)
    if order == "grey" and form.matrix == "601":
        return _LumaDrawer(area, form.full_range, interpolation)
    return _PlanesDrawer(area, weights(form.matrix, form.full_range, order), interpolation)


def _native_drawer(form: FrameFormat, area: Area, order: Order) -> Drawer:
    size = (area.rows, area.columns, area.height, area.width)
    if form.pixels == "bgr":
        return NativeDrawer(BgrDrawer(*size, swap=order == "rgb"))
    of_values = weights(form.matrix, form.full_range, order)[:, :3]
    return NativeDrawer(PlanesDrawer(*size, of_values.tolist(), form.full_range))


class NativeDrawer:
    """Draws by ``native``, which the native core can also use without us."""

    def __init__(self, native: BgrDrawer | PlanesDrawer) -> None:
        self.native = native

    def draw(self, pixels: Image, into: Image) -> Image:
        """As the protocol says; nothing is allocated."""
        self.native.draw(pixels, into)
        return into


class _BgrDrawer:
    def __init__(self, area: Area, order: Order, interpolation: int) -> None:
        self._part = area[:2]
        self._interpolation = interpolation
        self._code = cv2.COLOR_BGR2GRAY if order == "grey" else cv2.COLOR_BGR2RGB
        # The picture before it becomes grey or its colours are swapped.
        self._colour: Image | None = None
        if order != "bgr":
            self._colour = np.empty((area.height, area.width, 3), np.uint8)

    def draw(self, pixels: Image, into: Image) -> Image:
        part = pixels[self._part]
        if self._colour is None:
            return _resize(part, into, self._interpolation)
        colour = _resize(part, self._colour, self._interpolation)
        return np.asarray(cv2.cvtColor(colour, self._code, dst=into), np.uint8)


class _LumaDrawer:
    """Grey from Y alone, which BT.601 has in common with OpenCV's grey."""

    def __init__(self, area: Area, full_range: bool, interpolation: int) -> None:
        self._part = area[:2]
        self._interpolation = interpolation
        self._luma = None if full_range else np.empty((area.height, area.width), np.uint8)

    def draw(self, pixels: Image, into: Image) -> Image:
        part = planes_of(pixels).y[self._part]
        if self._luma is None:
            return _resize(part, into, self._interpolation)
        luma = _resize(part, self._luma, self._interpolation)
        return np.asarray(cv2.LUT(luma, luma_table(), dst=into), np.uint8)


class _PlanesDrawer:
    """Each plane is resized by itself, so only as many pixels as the model has are converted."""

    def __init__(self, area: Area, weights: npt.NDArray[np.float32], interpolation: int) -> None:
        self._luma = area[:2]
        self._chroma = (_halved(area.rows), _halved(area.columns))
        self._weights = weights
        self._interpolation = interpolation
        self._planes = [np.empty((area.height, area.width), np.uint8) for _ in range(3)]
        self._joined = np.empty((area.height, area.width, 3), np.uint8)

    def draw(self, pixels: Image, into: Image) -> Image:
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
