"""A GStreamer pipeline as a source, where OpenCV was built with GStreamer."""

from __future__ import annotations

import cv2

from pipeline.clock import Clock
from pipeline.errors import SourceError
from pipeline.memory.frame import FrameFormat
from pipeline.sources.opencv_reader import LiveCaptureReader, OpenCVCapture
from pipeline.sources.settings import SourceSettings

__all__ = ["SCHEME", "GstreamerReader"]

SCHEME = "gstreamer:"
_SINK = " ! videoconvert ! appsink max-buffers=1 drop=true"


class GstreamerReader(LiveCaptureReader):
    """Frames of the pipeline ``gstreamer: ELEMENT ! ...``, stamped when taken; a ``Reader``.

    Without an ``appsink`` of its own it is given one that keeps the newest frame only. Its
    end is a SourceError, as with a camera. OpenCV waits without an end for a pipeline that does
    not start, and older ones for a frame: who must not wait leaves the reader behind.
    """

    live = True

    def __init__(self, settings: SourceSettings, clock: Clock) -> None:
        super().__init__("GStreamer pipeline")  # its text may hold passwords
        text = str(settings.uri).removeprefix(SCHEME).strip()
        self._text = text if "appsink" in text else text + _SINK
        self._clock = clock
        self._seconds = settings.read_timeout_s

    def open(self) -> FrameFormat:
        """Start the pipeline. SourceError when OpenCV has no GStreamer or it does not play."""
        if not cv2.videoio_registry.hasBackend(cv2.CAP_GSTREAMER):
            raise SourceError(
                f"{self._where}: this OpenCV ({cv2.__version__}) was built without GStreamer, as "
                "those from pip are; use one that has it, 4.10 or newer, as some distributions "
                "ship, or another kind of source"
            )
        try:
            capture = OpenCVCapture(self._text, cv2.CAP_GSTREAMER, self._where)
        except SourceError as error:
            raise SourceError(
                f"{self._where}: does not play; try its text with gst-launch-1.0"
            ) from error
        # Not when it is opened: an older OpenCV then refuses to open at all.
        capture.set(cv2.CAP_PROP_READ_TIMEOUT_MSEC, round(self._seconds * 1000))
        try:
            found = capture.frame_format()._replace(frames=None)
        except SourceError:
            capture.close()
            raise
        self._capture = capture
        return found

    def grab(self) -> int | None:
        """Wait for the next frame; SourceError when none comes any more."""
        lost = f"it ended, or no frame came for {self._seconds:g} s"
        return self._grab_live(self._clock, lost)
