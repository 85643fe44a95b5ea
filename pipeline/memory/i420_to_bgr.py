"""Whole I420 images as BGR, for those who look at them."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from pipeline.memory.i420 import Matrix, planes_of, weights

__all__ = ["BgrConverter"]

_Bytes = npt.NDArray[np.uint8]

# Rows of U and V that are converted at a time: the scratch stays in the cache.
_STRIP = 64


class BgrConverter:
    """Converts whole I420 images of one width; not for two threads at once."""

    def __init__(self, width: int, matrix: Matrix, full_range: bool) -> None:
        self._weights = weights(matrix, full_range, "bgr")
        self._fast = matrix == "601" and not full_range
        if not self._fast:
            self._chroma = np.empty((2, _STRIP, width // 2, 2), np.uint8)
            self._joined = np.empty((_STRIP, width, 3), np.uint8)

    def convert(self, pixels: _Bytes, into: _Bytes) -> None:
        """Fill ``into``, uint8 BGR (H, W, 3), from I420 ``pixels``."""
        if self._fast:
            cv2.cvtColor(pixels, cv2.COLOR_YUV2BGR_I420, dst=into)
            return
        planes = planes_of(pixels)
        rows, width = planes.u.shape[0], planes.y.shape[1]
        for start in range(0, rows, _STRIP):
            end = min(rows, start + _STRIP)
            doubled = []
            for plane, scratch in zip(planes[1:], self._chroma, strict=True):
                # Merging a plane with itself says each value twice, faster than any resize.
                strip, out = plane[start:end], scratch[: end - start]
                cv2.merge((strip, strip), dst=out)
                doubled.append(out.reshape(-1, width))
            joined = self._joined[: end - start]
            for row in (2 * start, 2 * start + 1):
                cv2.merge((planes.y[row : 2 * end : 2], *doubled), dst=joined)
                cv2.transform(joined, self._weights, dst=into[row : 2 * end : 2])
