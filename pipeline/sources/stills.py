"""Single images, read by decoders that report damage and print nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import cv2
import numpy as np

from pipeline.errors import SourceError
from pipeline.memory.frame import Image
from pipeline.sources.videoio import error_line, quiet_opencv

if TYPE_CHECKING:
    from av import VideoFrame

__all__ = ["Still", "read_still"]

# FFmpeg reports what libjpeg and libpng patch up, and say on standard error only.
_DECODERS = {b"\xff\xd8\xff": "mjpeg", b"\x89PNG\r\n\x1a\n": "png"}

# EXIF's orientation, but for "upright", in either byte order. OpenCV follows it, also to mirror.
_TURNED = re.compile(
    rb"\x12\x01\x03\x00\x01\x00\x00\x00[\x02-\x08]|\x01\x12\x00\x03\x00\x00\x00\x01\x00[\x02-\x08]"
)


class Still(NamedTuple):
    """A decoded image: a frame of FFmpeg's or one as BGR. ``damage`` in words, if there is."""

    image: VideoFrame | Image
    damage: str = ""


def read_still(path: str, where: str, max_pixels: int) -> Still:
    """Decode the file; SourceError, which begins with ``where``, when that is not possible."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise SourceError(f"{where}: {error.strerror}") from error
    cut = "" if _jpeg_is_whole(data) else "the image is cut off"
    codec = next((codec for start, codec in _DECODERS.items() if data.startswith(start)), None)
    try:
        from pipeline.sources.pyav_frames import decode_alone
    except ImportError:  # PyAV comes with the extra "streams"
        codec = None
    if codec is None:
        return Still(_decode_with_opencv(data, where), cut)
    image = decode_alone(data, codec, max_pixels)
    if image is not None:
        turned = _TURNED.search(data) is not None
        return Still(_decode_with_opencv(data, where) if turned and not cut else image, cut)
    image = decode_alone(data, codec, max_pixels, strict=False)
    if image is None:
        raise SourceError(
            f"{where}: {cut or 'not an image that can be decoded'}, or more than "
            f"max_pixels ({max_pixels})"
        )
    return Still(image, cut or "the image is damaged")


def _decode_with_opencv(data: bytes, where: str) -> Image:
    try:
        with quiet_opencv():
            image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if data else None
    except cv2.error as error:
        raise SourceError(
            f"{where}: not an image that can be decoded: {error_line(error)}"
        ) from error
    if image is None or image.size == 0:
        raise SourceError(f"{where}: not an image that can be decoded")
    return np.asarray(image, np.uint8)


def _jpeg_is_whole(data: bytes) -> bool:
    """False for a JPEG without its end, which decoders fill with grey and do not report."""
    if data[:2] != b"\xff\xd8":
        return True
    at = 2
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] != b"\xda":
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return data.find(b"\xff\xd9", at) >= 0
