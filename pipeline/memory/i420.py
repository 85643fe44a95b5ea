"""From I420 planes to BGR, RGB or grey, by BT.601 or BT.709 and limited or full range.

OpenCV's own conversion of I420 knows BT.601 of limited range only.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Matrix", "Order", "Planes", "luma_table", "planes_of", "weights"]

Matrix = Literal["601", "709"]
Order = Literal["bgr", "rgb", "grey"]
_Bytes = npt.NDArray[np.uint8]

# Shares of red and blue in brightness.
_SHARES: dict[Matrix, tuple[float, float]] = {"601": (0.299, 0.114), "709": (0.2126, 0.0722)}


class Planes(NamedTuple):
    """Views of one I420 buffer: Y (H, W), U and V (H / 2, W / 2)."""

    y: _Bytes
    u: _Bytes
    v: _Bytes


def planes_of(pixels: _Bytes) -> Planes:
    """The planes in a contiguous I420 buffer of shape (H * 3 / 2, W), H and W even."""
    height, width = pixels.shape[0] * 2 // 3, pixels.shape[1]
    # A chroma plane need not end with a row of the buffer.
    chroma = pixels.reshape(-1)[height * width :].reshape(2, height // 2, width // 2)
    return Planes(pixels[:height], chroma[0], chroma[1])


@cache
def weights(matrix: Matrix, full_range: bool, order: Order) -> npt.NDArray[np.float32]:
    """Matrix for ``cv2.transform`` of (Y, U, V, 1): (3, 4), or (1, 4) for grey.

    Grey is as OpenCV's ``COLOR_BGR2GRAY`` has it, which takes BT.601 for granted.
    """
    red, blue = _SHARES[matrix]
    green = 1 - red - blue
    of_y, of_c = (1.0, 1.0) if full_range else (255 / 219, 255 / 224)
    v_red, u_blue = 2 * (1 - red) * of_c, 2 * (1 - blue) * of_c
    rgb = np.array(
        [
            (of_y, 0, v_red),
            (of_y, -u_blue * blue / green, -v_red * red / green),
            (of_y, u_blue, 0),
        ]
    )
    rows = {"rgb": rgb, "bgr": rgb[::-1], "grey": np.array([[0.299, 0.587, 0.114]]) @ rgb}[order]
    zero = rows @ np.array([0.0 if full_range else 16.0, 128.0, 128.0])
    made = np.ascontiguousarray(np.column_stack([rows, -zero]), np.float32)
    made.flags.writeable = False
    return made


@cache
def luma_table() -> _Bytes:
    """Brightness 0..255 for each value of a limited-range Y."""
    made = np.clip(np.rint((np.arange(256) - 16.0) * 255 / 219), 0, 255).astype(np.uint8)
    made.flags.writeable = False
    return made
