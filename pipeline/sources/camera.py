"""Cameras of this machine through V4L2: an index or /dev/video*."""

from __future__ import annotations

import logging
import os
import stat

import cv2

from pipeline.clock import Clock
from pipeline.errors import SourceError
from pipeline.memory.frame import FrameFormat
from pipeline.sources.opencv_reader import LiveCaptureReader, OpenCVCapture
from pipeline.sources.settings import SourceSettings

__all__ = ["CameraReader"]

_log = logging.getLogger(__name__)


class CameraReader(LiveCaptureReader):
    """Frames of one camera, stamped when they arrived; implements ``Reader``.

    Pixel format, width, height and rate are asked for; the camera may choose others, which is
    logged, and the format says what it chose. A camera that stops is a SourceError. OpenCV
    waits 10 s for a frame, which cannot be changed, and until then a waiting ``grab`` cannot be
    interrupted; who must not wait leaves the reader behind.
    """

    live = True

    def __init__(self, settings: SourceSettings, clock: Clock) -> None:
        uri = settings.uri
        self._device = f"/dev/video{uri}" if isinstance(uri, int) else uri
        super().__init__(f"camera {self._device}")
        self._clock = clock
        self._fourcc = settings.fourcc
        self._asked = {
            cv2.CAP_PROP_FRAME_WIDTH: settings.width,
            cv2.CAP_PROP_FRAME_HEIGHT: settings.height,
            cv2.CAP_PROP_FPS: settings.fps,
        }

    def open(self) -> FrameFormat:
        """Open the device. SourceError when it is absent, busy, forbidden or no camera."""
        self._check_device()
        try:
            capture = OpenCVCapture(self._device, cv2.CAP_V4L2, self._where)
        except SourceError as error:
            raise SourceError(
                f"{self._where}: cannot be opened; another program uses it, or it delivers no video"
            ) from error
        try:
            found = self._configure(capture)
        except SourceError:
            capture.close()
            raise
        self._capture = capture
        return found

    def grab(self) -> int | None:
        """Wait for the next frame; SourceError when none comes any more."""
        return self._grab_live(self._clock, "frames stopped (unplugged, busy or hung)")

    def _check_device(self) -> None:
        try:
            mode = os.stat(self._device).st_mode
            if not stat.S_ISCHR(mode):
                raise SourceError(f"{self._where}: not a device")
            os.close(os.open(self._device, os.O_RDWR | os.O_NONBLOCK))
        except FileNotFoundError:
            raise SourceError(f"{self._where}: no such device") from None
        except OSError as error:
            raise SourceError(f"{self._where}: {error.strerror}") from error

    def _configure(self, capture: OpenCVCapture) -> FrameFormat:
        # The pixel format comes first: which sizes and rates there are depends on it.
        if self._fourcc is not None:
            capture.set(cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*self._fourcc))
        for prop, value in self._asked.items():
            if value is not None:
                capture.set(prop, value)
        # One that is read and one that is filled. With four, a reader that is slow would be
        # given frames that are old; with one, the camera would have none to fill meanwhile.
        capture.set(cv2.CAP_PROP_BUFFERSIZE, 2)
        found = capture.frame_format()._replace(frames=None)
        given = (found.width, found.height, found.fps)
        for name, asked, got in zip(
            ("width", "height", "fps"), self._asked.values(), given, strict=True
        ):
            if asked is not None and (got is None or abs(got - asked) > 0.5):
                self._warn(name, f"{asked:g}", got)
        code = int(capture.get(cv2.CAP_PROP_FOURCC))
        pixels = code.to_bytes(4, "little").decode("ascii", "replace")
        if self._fourcc is not None and pixels != self._fourcc:
            self._warn("fourcc", self._fourcc, pixels if code else "another one")
        return found

    def _warn(self, name: str, asked: str, got: object) -> None:
        _log.warning("%s: %s %s was asked for, the camera gives %s", self._where, name, asked, got)
