"""Resizing a part of a frame to the model's size: from BGR, or plane by plane from I420.

Colors that are interpolated linearly, the usual case, are resized by the native core, which
takes less time than OpenCV and allocates nothing; the others by OpenCV.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from pipeline._native import BgrResizer, PlanesResizer
from pipeline.memory.frame import FrameFormat, Image
from pipeline.memory.i420 import Order, weights

__all__ = ["Area", "Interpolation", "NativeResizer", "Resizer", "native_resizer"]

Interpolation = Literal["linear", "area", "nearest"]


class Area(NamedTuple):
    """``rows`` and ``columns`` of the frame, which become ``width`` x ``height`` pixels.

    Of I420 they begin and end at even numbers.
    """

    rows: slice
    columns: slice
    width: int
    height: int


class Resizer(Protocol):
    """Resizes frames of one format to images of one size."""

    def resize(self, pixels: Image, into: Image) -> Image:
        """Resize into ``into``; what is returned is another array where OpenCV made one."""


class NativeResizer:
    """Resizes by ``native``, which the native core can also use without us."""

    def __init__(self, native: BgrResizer | PlanesResizer) -> None:
        self.native = native

    def resize(self, pixels: Image, into: Image) -> Image:
        """As the protocol says; nothing is allocated."""
        self.native.resize(pixels, into)
        return into


def native_resizer(form: FrameFormat, area: Area, order: Order) -> NativeResizer:
    """A resizer of the native core, for linear interpolation and three channels."""
    size = (area.rows, area.columns, area.height, area.width)
    if form.pixels == "bgr":
        return NativeResizer(BgrResizer(*size, swap=order == "rgb"))
    of_values = weights(form.matrix, form.full_range, order)[:, :3]
    return NativeResizer(PlanesResizer(*size, of_values.tolist(), form.full_range))
