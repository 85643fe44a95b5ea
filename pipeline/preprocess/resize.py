"""Drawing a part of a frame at the model's size: from BGR, or plane by plane from I420.

Colors that are interpolated linearly, the usual case, are drawn by the native core, which takes
less time than OpenCV and allocates nothing; the others by OpenCV.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from pipeline._native import BgrDrawer, PlanesDrawer
from pipeline.memory.frame import FrameFormat, Image
from pipeline.memory.i420 import Order, weights

__all__ = ["Area", "Drawer", "Interpolation", "NativeDrawer", "native_drawer"]

Interpolation = Literal["linear", "area", "nearest"]


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


class NativeDrawer:
    """Draws by ``native``, which the native core can also use without us."""

    def __init__(self, native: BgrDrawer | PlanesDrawer) -> None:
        self.native = native

    def draw(self, pixels: Image, into: Image) -> Image:
        """As the protocol says; nothing is allocated."""
        self.native.draw(pixels, into)
        return into


def native_drawer(form: FrameFormat, area: Area, order: Order) -> NativeDrawer:
    """A drawer of the native core, for linear interpolation and three channels."""
    size = (area.rows, area.columns, area.height, area.width)
    if form.pixels == "bgr":
        return NativeDrawer(BgrDrawer(*size, swap=order == "rgb"))
    of_values = weights(form.matrix, form.full_range, order)[:, :3]
    return NativeDrawer(PlanesDrawer(*size, of_values.tolist(), form.full_range))
