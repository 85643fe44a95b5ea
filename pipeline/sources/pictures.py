"""From FFmpeg's decoded pictures into frame buffers; shared by the readers that use PyAV."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import numpy as np
from av.video.reformatter import VideoReformatter

from pipeline.errors import FormatChangedError
from pipeline.frame import FrameFormat, Image

if TYPE_CHECKING:
    from av import VideoCodecContext, VideoFrame

__all__ = ["BgrWriter", "Damage", "strict_decoder"]

_log = logging.getLogger(__name__)

_SAY_SECONDS = 10.0


def strict_decoder(context: VideoCodecContext) -> None:
    """Set up a decoder, not yet open, that refuses damage and holds no frame back.

    By itself FFmpeg paints over what is missing. Its threads would each hold a frame back.
    """
    context.thread_type = "NONE"
    context.thread_count = 1
    context.options = {"err_detect": "explode"}


class BgrWriter:
    """Writes pictures as uint8 BGR, by the colour matrix and range that they declare.

    swscale converts into memory of its own and from there it is copied: PyAV lets it write
    nowhere else, and the other way, OpenCV on copied planes, takes longer and knows one
    colour range only.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._reformatter = VideoReformatter()

    def write(self, frame: VideoFrame, buffer: Image) -> None:
        """Fill ``buffer``; FormatChangedError when the picture has another size."""
        height, width, _ = buffer.shape
        if (frame.width, frame.height) != (width, height):
            raise FormatChangedError(
                f"{self._where}: the picture is {frame.width}x{frame.height}, "
                f"needed {width}x{height}",
                FrameFormat(frame.width, frame.height),
            )
        converted = self._reformatter.reformat(frame, format="bgr24", threads=1)
        plane = converted.planes[0]
        strides = (plane.line_size, 3, 1)
        np.copyto(buffer, np.ndarray(buffer.shape, np.uint8, memoryview(plane), 0, strides))


class Damage:
    """Counts pictures that could not be used and says so, not for each of them."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._said = -_SAY_SECONDS
        self.count = 0

    def add(self, what: str) -> None:
        """One more, and what was wrong with it."""
        self.count += 1
        if time.monotonic() - self._said >= _SAY_SECONDS:
            self._said = time.monotonic()
            _log.warning("%s: %s; passed over (%d so far)", self._where, what, self.count)
