"""The test frame: a moving ramp with the frame number in blocks that survive compression.

The number is written as 16 black or white blocks across the top eighth of the frame and,
inverted, across the eighth below it, so that a frame that is torn or spoilt gives no number
instead of a wrong one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["MODULUS", "luma", "read_number"]

BITS = 16
MODULUS = 1 << BITS
_BLACK, _WHITE = 32, 220


def luma(number: int, width: int, height: int) -> bytes:
    """Brightness of frame ``number``, ``height`` rows of ``width`` bytes."""
    levels = [_WHITE if number >> (BITS - 1 - bit) & 1 else _BLACK for bit in range(BITS)]
    edges = [width * bit // BITS for bit in range(BITS + 1)]
    row = b"".join(
        bytes((level,)) * (right - left)
        for level, left, right in zip(levels, edges, edges[1:], strict=False)
    )
    inverted = bytes(_WHITE + _BLACK - value for value in row)
    band = height // 8
    ramp = bytes(64 + value // 2 for value in range(256)) * (width // 256 + 2)
    start = 3 * number % 256
    return row * band + inverted * band + ramp[start : start + width] * (height - 2 * band)


def read_number(image: npt.NDArray[np.uint8]) -> int | None:
    """The number in a frame of shape (height, width) or (height, width, 3).

    It counts modulo ``MODULUS``. None when the frame is no such one or is damaged there.
    """
    height, width = image.shape[:2]
    band = height // 8
    number = 0
    for bit in range(BITS):
        left, right = width * bit // BITS, width * (bit + 1) // BITS
        inset = (right - left) // 4
        columns = slice(left + inset, right - inset)
        upper = float(image[band // 4 : band - band // 4, columns].mean())
        lower = float(image[band + band // 4 : 2 * band - band // 4, columns].mean())
        if abs(upper - lower) < (_WHITE - _BLACK) / 2:
            return None
        number = number << 1 | (upper > lower)
    return number
