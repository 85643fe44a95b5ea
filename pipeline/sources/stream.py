"""Network streams: rtsp://, http(s):// and whatever else FFmpeg opens by URL."""

from __future__ import annotations

import cv2

from pipeline.clock import Clock
from pipeline.errors import SourceError
from pipeline.frame import FrameFormat
from pipeline.locate import redact
from pipeline.sources.capture import Capture, CaptureReader
from pipeline.sources.settings import SourceSettings
from pipeline.videoio import ffmpeg_backend

__all__ = ["StreamReader"]


class StreamReader(CaptureReader):
    """Frames of one stream, stamped when they arrived; implements ``Reader``.

    A stream that stops is a SourceError, unless it is a file of a declared length that was
    played to its end. Opening and each read give up after ``open_seconds`` and
    ``read_seconds``; until then a waiting ``grab`` cannot be interrupted.
    """

    live = True

    def __init__(
        self,
        settings: SourceSettings,
        clock: Clock,
        *,
        open_seconds: float = 10.0,
        read_seconds: float = 5.0,
    ) -> None:
        self._url = str(settings.uri)
        super().__init__(redact(self._url))
        self._clock = clock
        self._timeouts = (open_seconds, read_seconds)
        self._declared = 0
        self._delivered = 0

    def open(self) -> FrameFormat:
        """Connect. SourceError when nothing answers in time or no video comes."""
        open_ms, read_ms = (round(seconds * 1000) for seconds in self._timeouts)
        try:
            capture = Capture(
                self._url,
                ffmpeg_backend(),
                self._where,
                (cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, open_ms, cv2.CAP_PROP_READ_TIMEOUT_MSEC, read_ms),
            )
        except SourceError as error:
            raise SourceError(
                f"{self._where}: cannot be opened; it refused, is no video or did not answer "
                f"within {self._timeouts[0]:g} s"
            ) from error
        try:
            found = capture.frame_format()
        except SourceError:
            capture.close()
            raise
        self._capture = capture
        self._declared = found.frames or 0
        return found

    def grab(self) -> int | None:
        """Wait for the next frame; SourceError when the stream stopped."""
        capture = self._opened()
        if self._stop.is_set():
            return None
        if capture.grab():
            self._delivered += 1
            return self._clock.now()
        if self._stop.is_set() or 0 < self._declared <= self._delivered:
            return None
        raise SourceError(
            f"{self._where}: the stream stopped after {self._delivered} frames (ended, or "
            f"nothing came for {self._timeouts[1]:g} s)"
        )
