"""A frame buffer of whatever format, for tests that play a reader by hand and look at BGR."""

from __future__ import annotations

import numpy as np

from pipeline.contracts import Reader
from pipeline.memory.frame import FrameFormat, Image
from pipeline.memory.i420_to_bgr import BgrConverter

__all__ = ["Buffer"]


class Buffer:
    """One buffer that fits a format, filled again and again.

    No pool of one frame: the two hold each other, so memory would come back with the collector.
    """

    def __init__(self, form: FrameFormat) -> None:
        self._pixels = self._image = np.zeros(form.shape, np.uint8)
        self._converter: BgrConverter | None = None
        if form.pixels == "i420":
            self._image = np.zeros((form.height, form.width, 3), np.uint8)
            self._converter = BgrConverter(form.width, form.matrix, form.full_range)

    def retrieve(self, reader: Reader) -> Image:
        """What the reader grabbed, as BGR; it lives until the one after."""
        reader.retrieve(self._pixels)
        if self._converter is not None:
            self._converter.convert(self._pixels, self._image)
        return self._image
