"""Turning and mirroring frames upright, as a container or an image file asks for it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from pipeline.memory.frame import Image

if TYPE_CHECKING:
    from av import VideoFrame
    from av.sidedata.sidedata import SideData

__all__ = ["UPRIGHT", "Orientation", "lay", "orientation_of"]

# Less than this share of the larger part does not count: matrices are written in fixed point.
_SMALL = 0.02


class Orientation(NamedTuple):
    """Rows and columns are swapped first, then left and right, then top and bottom."""

    swapped: bool = False
    mirrored: bool = False
    flipped: bool = False


UPRIGHT = Orientation()
# Degrees to the left.
_TURNS = {
    90: Orientation(True, False, True),
    -90: Orientation(True, True, False),
    180: Orientation(False, True, True),
    -180: Orientation(False, True, True),
}


def orientation_of(frame: VideoFrame) -> Orientation:
    """Orientation by a frame's display matrix; a frame that is tilted or skewed stays as it is."""
    try:
        data = cast("SideData | None", frame.side_data.get("DISPLAYMATRIX"))
    except ValueError:  # beside it there is data of a kind that this PyAV does not know
        return _TURNS.get(frame.rotation, UPRIGHT)
    if data is None or data.buffer_size < 36:
        return UPRIGHT
    # x' = a x + c y and y' = b x + d y, with y downwards.
    a, b, _, c, d, *_ = struct.unpack_from("=9i", memoryview(data))
    straight, turned = min(abs(a), abs(d)), min(abs(b), abs(c))
    if max(abs(b), abs(c)) <= straight * _SMALL:
        return Orientation(False, a < 0, d < 0)
    if max(abs(a), abs(d)) <= turned * _SMALL:
        return Orientation(True, c < 0, b < 0)
    return UPRIGHT


def lay(source: Image, target: Image, orientation: Orientation) -> None:
    """Copy ``source`` into ``target``, whose rows and columns are those of the upright one."""
    if orientation == UPRIGHT:
        np.copyto(target, source)
        return
    swapped, mirrored, flipped = orientation
    if swapped and mirrored == flipped:
        upright = source.swapaxes(0, 1)
        np.copyto(target, upright[::-1, ::-1] if mirrored else upright)
        return
    # Tens of megabytes that most sources do not need, but far faster than strided copies.
    import cv2

    if swapped:
        left, right = cv2.ROTATE_90_COUNTERCLOCKWISE, cv2.ROTATE_90_CLOCKWISE
        cv2.rotate(source, right if mirrored else left, target)
    else:
        cv2.flip(source, -1 if mirrored and flipped else int(mirrored), target)
