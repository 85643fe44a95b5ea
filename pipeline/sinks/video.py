"""An annotated video: boxes, labels and landmarks on the frames."""

from __future__ import annotations

import cv2
import numpy as np

from pipeline.contracts import StreamInfo
from pipeline.errors import SinkError
from pipeline.frame import FrameFormat, Image
from pipeline.results import Detection, Detections, Result
from pipeline.sinks.encoder import Encoder
from pipeline.sinks.settings import VideoSettings
from pipeline.sinks.target import make_parent, reason_of

__all__ = ["VideoSink", "annotate"]

DEFAULT_FPS = 30.0
# BGR, well apart and legible on most pictures.
_COLOURS = ((80, 220, 60), (60, 120, 255), (255, 160, 40), (60, 220, 240), (240, 90, 220))
_DARK, _LIGHT = (0, 0, 0), (255, 255, 255)


def annotate(canvas: Image, detections: Detections) -> None:
    """Draw the detections into ``canvas``, uint8 BGR (height, width, 3) in frame pixels."""
    unit = max(1, round(min(canvas.shape[:2]) / 360))
    for index, detection in enumerate(detections):
        colour = _COLOURS[int(detections.labels[index]) % len(_COLOURS)]
        if np.isfinite(detection.box).all():
            _draw_box(canvas, detection, colour, unit)
        for x, y in detection.landmarks[np.isfinite(detection.landmarks).all(1)]:
            cv2.circle(canvas, (_pixel(x), _pixel(y)), unit + 1, colour, cv2.FILLED, cv2.LINE_AA)


def _pixel(value: float) -> int:
    # OpenCV's coordinates are 16 bits wide before its own shift.
    return round(min(max(float(value), -30000.0), 30000.0))


def _draw_box(canvas: Image, detection: Detection, colour: tuple[int, int, int], unit: int) -> None:
    x1, y1, x2, y2 = (_pixel(value) for value in detection.box)
    cv2.rectangle(canvas, (x1, y1), (x2, y2), colour, unit)
    text = f"{detection.label} {detection.score:.2f}"
    font, size = cv2.FONT_HERSHEY_SIMPLEX, 0.4 * unit
    (width, height), below = cv2.getTextSize(text, font, size, unit)
    # Above the box, or inside it where there is no room above.
    base = y1 - below if y1 - height - below >= 0 else y1 + height + unit
    left = max(0, min(x1, canvas.shape[1] - width))
    corner, far = (left, base - height), (left + width, base + below)
    cv2.rectangle(canvas, corner, far, colour, cv2.FILLED)
    ink = _DARK if sum(colour) > 380 else _LIGHT
    cv2.putText(canvas, text, (left, base), font, size, ink, unit, cv2.LINE_AA)


class VideoSink:
    """Encodes each result's frame with its detections drawn on, implementing ``Sink``.

    The folders above the file are made and an older file is replaced. Sizes that are not even
    lose their last column or row, as most codecs need even ones. A process that is killed
    leaves a file that plays up to about a second before.
    """

    needs_image = True

    def __init__(self, settings: VideoSettings) -> None:
        self._settings = settings
        self._where = f"video: {settings.path}"
        self._open = False
        self._encoder: Encoder | None = None
        self._canvas: Image = np.empty((0, 0, 3), np.uint8)

    def open(self, stream: StreamInfo) -> None:
        """Start the file. SinkError when it cannot be written or the codec is not there.

        Where the format is not known yet, the encoder starts with the first frame.
        """
        path = self._settings.path
        make_parent("video", path)
        try:
            with open(path, "wb"):
                pass
        except OSError as error:
            raise SinkError(f"{self._where}: cannot be written: {reason_of(error)}") from error
        self._open = True
        if stream.format is not None:
            self._start(stream.format)

    def _start(self, frame_format: FrameFormat) -> None:
        width, height, source_fps, *_ = frame_format
        fps = self._settings.fps or source_fps or DEFAULT_FPS
        self._canvas = np.empty((height, width, 3), np.uint8)
        self._encoder = Encoder(self._settings.path, self._settings.codec, width, height, fps)

    def write(self, result: Result) -> None:
        """Encode one frame; one of another size than the first is scaled to it."""
        if not self._open:
            raise SinkError(f"{self._where}: not open")
        image = result.image
        if self._encoder is None:
            self._start(FrameFormat(image.shape[1], image.shape[0]))
            assert self._encoder is not None
        if image.shape == self._canvas.shape:
            np.copyto(self._canvas, image)
            annotate(self._canvas, result.detections)
        else:
            picture = image.copy()
            annotate(picture, result.detections)
            cv2.resize(picture, self._canvas.shape[1::-1], dst=self._canvas)
        self._encoder.write(self._canvas)

    def close(self) -> None:
        """Finish the file; SinkError when it could not be written whole."""
        encoder, self._encoder, self._open = self._encoder, None, False
        if encoder is not None:
            encoder.close()
