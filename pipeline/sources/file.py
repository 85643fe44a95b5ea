"""Video files, read as fast as asked for or played in real time."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pipeline.clock import Clock
from pipeline.errors import SourceError
from pipeline.memory.frame import FrameFormat
from pipeline.redact import redact
from pipeline.sources.containers import Container, inspect
from pipeline.sources.pace import Pace
from pipeline.sources.reader import CaptureReader
from pipeline.sources.settings import SourceSettings

if TYPE_CHECKING:
    from av.container import InputContainer

    from pipeline.sources.opencv_reader import OpenCVCapture
    from pipeline.sources.pyav_file import PyAVFile

__all__ = ["FileReader"]

_log = logging.getLogger(__name__)

# After a damaged stretch OpenCV goes on, so a failed grab is not yet the end.
_SPARE_GRABS = 4
_MOST_GRABS = 1000
# When more than this share cannot be decoded the file counts as damaged; less is logged.
_TOLERATED_SHARE = 0.1


class _Connection(Protocol):
    def interrupt(self) -> None: ...
    def close(self) -> None: ...


class FileReader(CaptureReader["OpenCVCapture | PyAVFile"]):
    """Frames of one video file, implementing ``Reader``.

    PyAV reads, where it is installed; else OpenCV does, as BGR.
    Stamps are when a frame was read or, with ``realtime``, when it was due by the file's own
    time. With ``loop`` the file starts again without limit. A file that was cut or is damaged
    delivers what can be decoded, then raises SourceError: it does when its structure says
    that bytes are missing at the end and frames are missing too, and when the decoder refused
    more than a tenth of the frames. Fewer are logged. ``connect`` opens what is no regular
    file, but has an end; ``waits`` is its connection.
    """

    live = False

    def __init__(
        self,
        settings: SourceSettings,
        clock: Clock,
        connect: Callable[[], InputContainer] | None = None,
        waits: _Connection | None = None,
    ) -> None:
        self._path = str(settings.uri)
        super().__init__(redact(self._path))
        self._clock = clock
        self._loop = settings.loop
        self._realtime = settings.realtime
        self._fps = settings.fps
        self._settings = settings
        self._connect = connect
        self._waits = waits
        self._pace: Pace | None = None
        self._container = Container()
        self._declared = 0
        self._delivered = 0
        self._first_ns = 0
        self._refused = 0  # before this pass
        self._before = 0  # damaged ones of captures that were closed

    def open(self) -> FrameFormat:
        """Open the file. SourceError when it is absent, empty or no video."""
        if self._connect is None:
            self._check_file()
            self._container = inspect(self._path)
        self._capture = self._open_capture()
        try:
            found = self._capture.frame_format()
        except SourceError:
            self.close()
            raise
        self._declared = found.frames or 0
        if self._realtime:
            self._pace = Pace(self._clock, found.fps or self._fps)
        return found._replace(frames=None) if self._loop else found

    def grab(self) -> int | None:
        """Advance to the next frame; SourceError at the end of a cut or damaged file."""
        capture = self._opened()
        while not self._stop.is_set():
            if self._advance(capture):
                return self._stamp(capture)
            if self._stop.is_set():
                break
            self._check_complete(capture)
            if not self._loop:
                break
            self._refused = capture.refused
            self._restart()
            if self._seek_start(capture):
                return self._stamp(capture)
            self.close()
            self._refused = 0
            capture = self._capture = self._open_capture()
        return None

    def interrupt(self) -> None:
        """Make ``grab`` return None from now on; also one that waits where that can be ended."""
        super().interrupt()
        if self._waits is not None:
            self._waits.interrupt()

    def close(self) -> None:
        """Close the file."""
        self._before = self.damaged
        super().close()
        if self._waits is not None:
            self._waits.close()

    @property
    def damaged(self) -> int:
        """Frames that the decoder patched up or refused."""
        capture = self._capture
        return self._before + (0 if capture is None else capture.damaged + capture.refused)

    @property
    def copies(self) -> int:
        """Frames that OpenCV did not decode straight into the frame buffer."""
        return 0 if self._capture is None else self._capture.copies

    def _check_file(self) -> None:
        if not os.path.exists(self._path):
            raise SourceError(f"{self._where}: no such file")
        if not os.path.isfile(self._path):
            raise SourceError(f"{self._where}: not a regular file")
        if not os.access(self._path, os.R_OK):
            raise SourceError(f"{self._where}: no permission to read it")
        if os.path.getsize(self._path) == 0:
            raise SourceError(f"{self._where}: the file is empty")

    def _open_capture(self) -> OpenCVCapture | PyAVFile:
        # At a cut more of them would cost the last frames.
        threads = 1 if self._container.cut else _decoder_threads()
        # Absolute, as FFmpeg takes "name:rest" for a protocol.
        path = os.path.abspath(self._path)
        try:
            movie = _movie(self._connect or path, self._settings, self._where, threads)
            return movie or self._open_with_opencv(path)
        except SourceError as error:
            if self._container.cut and error.__cause__ is not None:
                raise SourceError(
                    f"{self._where}: the file is cut off and its index, which stood at the "
                    "end, is missing"
                ) from error
            raise

    def _open_with_opencv(self, path: str) -> OpenCVCapture:
        # Tens of megabytes that are not needed where PyAV reads.
        import cv2

        from pipeline.sources.opencv_reader import OpenCVCapture
        from pipeline.sources.videoio import ffmpeg_backend

        try:
            capture = OpenCVCapture(path, ffmpeg_backend(), self._where)
        except SourceError as error:
            raise SourceError(f"{self._where}: not a video file that can be decoded") from error
        # FFmpeg draws text files as frames of their text.
        if int(capture.get(cv2.CAP_PROP_FOURCC)) == cv2.VideoWriter.fourcc(*"ansi"):
            capture.close()
            raise SourceError(f"{self._where}: a text file, not a video")
        return capture

    def _advance(self, capture: OpenCVCapture | PyAVFile) -> bool:
        grabs = 1
        if capture.declared is None:
            missing = max(0, self._declared - self._delivered)
            grabs = min(_MOST_GRABS, missing + _SPARE_GRABS)
        for _ in range(grabs):
            if self._stop.is_set():
                return False
            if capture.grab():
                return True
        return False

    def _stamp(self, capture: OpenCVCapture | PyAVFile) -> int | None:
        position = capture.position_ns()
        if self._delivered == 0:
            self._first_ns = position
        self._delivered += 1
        return self._clock.now() if self._pace is None else self._pace.wait(self._stop, position)

    def _restart(self) -> None:
        self._delivered = 0
        if self._pace is not None:
            self._pace.restart()

    def _seek_start(self, capture: OpenCVCapture | PyAVFile) -> bool:
        """Grab the first frame again. Seeking keeps the decoder, but not every format can."""
        if not (capture.rewind() and capture.grab()):
            return False
        return capture.position_ns() == self._first_ns

    def _check_complete(self, capture: OpenCVCapture | PyAVFile) -> None:
        delivered, refused = self._delivered, capture.refused - self._refused
        if delivered == 0:
            raise SourceError(f"{self._where}: no frame of it can be decoded")
        if self._connect is not None and capture.broke_off:
            raise SourceError(f"{self._where}: it broke off after {delivered} frames")
        if self._container.cut and self._declared > delivered:
            told = f"{delivered} of {self._declared} frames could be decoded"
            raise SourceError(f"{self._where}: {told}; the file is cut off")
        total = max(capture.declared or 0, delivered + refused)
        told = f"{self._where}: {delivered} of {total} frames could be decoded"
        if refused > (delivered + refused) * _TOLERATED_SHARE:
            raise SourceError(f"{told}; the file is damaged")
        if refused:
            _log.warning("%s", told)


def _decoder_threads() -> int:
    """One for each core, and one that waits to hand its frame over."""
    return len(os.sched_getaffinity(0)) + 1


def _movie(
    source: str | Callable[[], InputContainer], settings: SourceSettings, where: str, threads: int
) -> PyAVFile | None:
    try:
        import av

        from pipeline.sources.pyav_file import PyAVFile
        from pipeline.sources.pyav_frames import open_container
    except ImportError:  # PyAV comes with the extra "streams"
        return None
    if callable(source):
        container = source()
    else:
        try:
            container = open_container(source)
        except (av.FFmpegError, ValueError) as error:
            raise SourceError(f"{where}: not a video file that can be decoded") from error
    return PyAVFile(
        container,
        where,
        threads,
        planes=settings.pixels == "auto",
        on_damage=settings.on_damage or "count",
        max_pixels=settings.max_pixels,
    )
