"""An open ``cv2.VideoCapture`` whose failures are SourceErrors; base of the live readers."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import cast

import cv2
import numpy as np

from pipeline.clock import Clock
from pipeline.errors import FormatChangedError, SourceError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.sources.pace import sane_rate
from pipeline.sources.reader import CaptureReader
from pipeline.sources.videoio import error_line, mute_ffmpeg, quiet_opencv, unmute_ffmpeg

__all__ = ["LiveCaptureReader", "OpenCVCapture", "deliver"]

_log = logging.getLogger(__name__)


def deliver(where: str, image: Image, buffer: Image) -> bool:
    """Make sure that a decoded frame is in ``buffer``; True if it had to be copied.

    OpenCV writes into the buffer that it is given when shape and type are the frame's own
    and makes a new array when not. SourceError when the frame does not fit.
    """
    if image.shape != buffer.shape or image.dtype != buffer.dtype:
        told = f"{where}: the frame is {_describe(image)}, needed {_describe(buffer)}"
        if image.ndim == 3 and image.shape[2] == 3 and image.dtype == buffer.dtype:
            raise FormatChangedError(told, FrameFormat(image.shape[1], image.shape[0]))
        raise SourceError(told)
    if image is buffer or image.ctypes.data == buffer.ctypes.data:
        return False
    np.copyto(buffer, image)
    return True


def _describe(image: Image) -> str:
    height, width, *channels = image.shape
    kind = f"{channels[0]} channels" if channels else "grey"
    return f"{width}x{height} {kind} {image.dtype}"


class OpenCVCapture:
    """One open capture. ``where`` begins every message and must hold no secrets.

    ``copies`` counts the frames that OpenCV did not decode into the given buffer.
    """

    def __init__(
        self, target: str | int, backend: int, where: str, parameters: Sequence[int] = ()
    ) -> None:
        self.where = where
        self.copies = 0
        self.declared = None  # OpenCV does not say if its number is an estimate
        self.damaged = self.refused = 0  # OpenCV does not report damage
        self.broke_off = False
        self._open = True
        mute_ffmpeg()
        try:
            with quiet_opencv():
                self._capture = cv2.VideoCapture(target, backend, list(parameters))
            if not self._capture.isOpened():
                raise SourceError(f"{where}: cannot be opened as video")
        except cv2.error as error:
            self.close()
            raise SourceError(f"{where}: cannot be opened as video: {error_line(error)}") from error
        except BaseException:
            self.close()
            raise

    def get(self, prop: int) -> float:
        """A property of the capture; 0 where it has none."""
        value = float(self._capture.get(prop))
        return value if math.isfinite(value) and value > 0 else 0.0

    def set(self, prop: int, value: float) -> bool:
        """Set a property; True if it was accepted."""
        with quiet_opencv():
            return bool(self._capture.set(prop, value))

    def frame_format(self) -> FrameFormat:
        """Size, rate and number of frames as declared. SourceError when there is no size."""
        width = int(self.get(cv2.CAP_PROP_FRAME_WIDTH))
        height = int(self.get(cv2.CAP_PROP_FRAME_HEIGHT))
        if not (width and height):
            raise SourceError(f"{self.where}: has no frames of a known size")
        fps = sane_rate(self.get(cv2.CAP_PROP_FPS))
        return FrameFormat(width, height, fps, int(self.get(cv2.CAP_PROP_FRAME_COUNT)) or None)

    def rewind(self) -> bool:
        """Go back to the start; False if the capture cannot."""
        return self.set(cv2.CAP_PROP_POS_FRAMES, 0)

    def grab(self) -> bool:
        """Advance to the next frame; False at the end and when one could not be decoded."""
        try:
            return bool(self._capture.grab())
        except cv2.error as error:
            raise SourceError(f"{self.where}: cannot be read: {error_line(error)}") from error

    def position_ns(self) -> int:
        """Stamp that the container gives the grabbed frame, nanoseconds from its start."""
        return round(self.get(cv2.CAP_PROP_POS_MSEC) * 1e6)

    def retrieve(self, buffer: Image) -> None:
        """Write the grabbed frame into ``buffer``."""
        try:
            ok, image = self._capture.retrieve(buffer)
        except cv2.error as error:
            raise SourceError(
                f"{self.where}: a frame cannot be decoded: {error_line(error)}"
            ) from error
        if not ok or image is None:
            raise SourceError(f"{self.where}: a frame cannot be decoded")
        if deliver(self.where, cast(Image, image), buffer):
            if self.copies == 0:
                _log.info("%s: OpenCV does not decode into the frame buffer; copying", self.where)
            self.copies += 1

    def close(self) -> None:
        """Free the capture; more than once does no harm."""
        if self._open:
            self._open = False
            if hasattr(self, "_capture"):
                self._capture.release()
            unmute_ffmpeg()


class LiveCaptureReader(CaptureReader[OpenCVCapture]):
    """Base of the readers of OpenCV's live captures."""

    def _grab_live(self, clock: Clock, lost: str) -> int | None:
        """Wait for the next frame; when there is none any more, SourceError with ``lost``."""
        capture = self._opened()
        if self._stop.is_set():
            return None
        if capture.grab():
            return clock.now()
        if self._stop.is_set():
            return None
        raise SourceError(f"{self._where}: {lost}")
