"""An annotated video: boxes, labels and landmarks on the frames."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Literal

import cv2
import numpy as np

from pipeline.contracts import StreamInfo
from pipeline.errors import SinkError
from pipeline.memory.frame import Image
from pipeline.memory.results import Detection, Detections, Result
from pipeline.paths import is_pipe
from pipeline.sinks.encoder import LEAST_FPS, MOST_FPS, Encoder, default_codec
from pipeline.sinks.settings import VideoSettings
from pipeline.sinks.target import Removal, make_parent, reason_of

__all__ = ["VideoSink", "annotate"]

_log = logging.getLogger(__name__)

DEFAULT_FPS = 30.0
# BGR, well apart and legible on most frames; bright enough for a label in black.
_COLORS = ((80, 220, 60), (60, 120, 255), (255, 160, 40), (60, 220, 240), (240, 90, 220))
_INK = (0, 0, 0)


def annotate(canvas: Image, detections: Detections) -> None:
    """Draw the detections into ``canvas``, uint8 BGR (height, width, 3) in frame pixels."""
    size = min(canvas.shape[:2])
    for index, detection in enumerate(detections):
        color = _COLORS[int(detections.labels[index]) % len(_COLORS)]
        if np.isfinite(detection.box).all():
            _draw_box(canvas, detection, color, size)
        radius = max(2, round(size / 240))
        for x, y in detection.landmarks[np.isfinite(detection.landmarks).all(1)]:
            cv2.circle(canvas, (_pixel(x), _pixel(y)), radius, color, cv2.FILLED, cv2.LINE_AA)


def _pixel(value: float) -> int:
    # OpenCV's coordinates are 16 bits wide before its own shift.
    return round(min(max(float(value), -30000.0), 30000.0))


def _draw_box(canvas: Image, detection: Detection, color: tuple[int, int, int], size: int) -> None:
    """Draw lines and text that grow with ``size``, the shorter side of the canvas."""
    x1, y1, x2, y2 = (_pixel(value) for value in detection.box)
    unit = max(1, round(size / 360))
    cv2.rectangle(canvas, (x1, y1), (x2, y2), color, unit)
    text = f"{detection.label} {detection.score:.2f}"
    font, scale = cv2.FONT_HERSHEY_SIMPLEX, max(0.4, size / 900)
    stroke = max(1, round(scale * 1.25))
    (width, height), below = cv2.getTextSize(text, font, scale, stroke)
    # Above the box, or inside it where there is no room above.
    base = y1 - below if y1 - height - below >= 0 else y1 + height + unit
    left = max(0, min(x1, canvas.shape[1] - width))
    corner, far = (left, base - height), (left + width, base + below)
    cv2.rectangle(canvas, corner, far, color, cv2.FILLED)
    cv2.putText(canvas, text, (left, base), font, scale, _INK, stroke, cv2.LINE_AA)


class VideoSink:
    """Encodes each result's frame with its detections drawn on, implementing ``Sink``.

    The folders above the file are made; ``begin`` empties an older file. Sizes that are not even
    lose their last column or row, as most codecs need even ones. A process that is killed
    leaves a file that plays up to about a second before. After an error, or when the file was
    removed, the next result begins a new part: ``name.2.mp4`` follows ``name.mp4``.
    """

    def __init__(self, settings: VideoSettings) -> None:
        self._settings = settings
        self._where = f"video: {settings.path}"
        self._codec = settings.codec or default_codec(settings.path)
        self._open = False
        self._fps = settings.fps
        self._part = 1
        self._name = -1  # descriptor of the file's name only
        self._removal = Removal(-1)
        self._encoder: Encoder | None = None
        self._canvas: Image = np.empty((0, 0, 3), np.uint8)

    def open(self, stream: StreamInfo) -> None:
        """Start the file. SinkError when it cannot be written or the codec is not there.

        Where the format is not known yet, the encoder starts with the first frame.
        """
        path = self._settings.path
        if self._settings.codec is None and (self._codec, path[-4:].lower()) == ("mp4v", ".mp4"):
            _log.warning("video: no encoder for H.264 here; %s is MPEG-4, unfit for browsers", path)
        if stream.format is not None:
            fps = stream.format.fps or DEFAULT_FPS
            # Some sources announce a clock rate, or nonsense.
            self._fps = self._fps or (fps if LEAST_FPS <= fps <= MOST_FPS else DEFAULT_FPS)
            self._start(stream.format.height, stream.format.width)
        self._make_file("ab")
        self._open = True

    def begin(self) -> None:
        """Empty an older file; SinkError when that is not possible."""
        self._make_file("wb")

    def _path(self) -> str:
        root, ending = os.path.splitext(self._settings.path)
        return self._settings.path if self._part == 1 else f"{root}.{self._part}{ending}"

    def _next_part(self) -> None:
        """Go on to the first name that nobody uses."""
        self._part += 1
        while os.path.lexists(self._path()):
            self._part += 1

    def _make_file(self, mode: Literal["ab", "wb"]) -> None:
        path = self._path()
        make_parent("video", path)
        if is_pipe(path):
            raise SinkError(f"video: {path}: is a pipe, needed a file")
        try:
            with open(path, mode):
                pass
            self._forget_name()
            self._name = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            raise SinkError(f"video: {path}: cannot be written: {reason_of(error)}") from error
        self._removal = Removal(self._name)

    def _start(self, height: int, width: int) -> None:
        self._canvas = np.empty((height, width, 3), np.uint8)
        fps = self._fps or DEFAULT_FPS
        self._encoder = Encoder(self._path(), self._codec, width, height, fps)

    def write(self, result: Result) -> None:
        """Encode one frame; one of another size than the first is scaled to it."""
        if not self._open:
            raise SinkError(f"{self._where}: not open")
        image = result.image
        if self._encoder is None:
            if self._canvas.size:
                self._make_file("wb")
            self._start(*(self._canvas.shape[:2] if self._canvas.size else image.shape[:2]))
            assert self._encoder is not None
        if image.shape == self._canvas.shape:
            np.copyto(self._canvas, image)
            annotate(self._canvas, result.detections)
        else:
            annotated = image.copy()
            annotate(annotated, result.detections)
            cv2.resize(annotated, self._canvas.shape[1::-1], dst=self._canvas)
        try:
            if self._removal.seen():
                raise SinkError(f"video: {self._path()}: was removed")
            self._encoder.write(self._canvas)
        except SinkError:
            self._leave_part()
            raise

    def interrupt(self) -> None:
        """Do nothing: it waits for nobody."""

    def _leave_part(self) -> None:
        """Keep what was written of this part, if anything was, and let the next one begin."""
        encoder, self._encoder = self._encoder, None
        with contextlib.suppress(SinkError, OSError):
            if encoder is not None:
                encoder.close()
        self._forget_name()
        if encoder is not None and encoder.frames:
            self._next_part()
        elif self._part > 1:
            with contextlib.suppress(OSError):
                os.unlink(self._path())

    def _forget_name(self) -> None:
        name, self._name = self._name, -1
        if name >= 0:
            os.close(name)

    def close(self) -> None:
        """Finish the file; SinkError when it could not be written whole."""
        encoder, self._encoder, self._open = self._encoder, None, False
        self._forget_name()
        if encoder is not None:
            encoder.close()
