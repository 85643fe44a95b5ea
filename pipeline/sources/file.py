"""Video files, read as fast as asked for or played in real time."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from pipeline.clock import Clock
from pipeline.errors import SourceError
from pipeline.frame import FrameFormat
from pipeline.locate import redact
from pipeline.sources.containers import Container, inspect
from pipeline.sources.pace import Pace
from pipeline.sources.reader import CaptureReader
from pipeline.sources.settings import SourceSettings

if TYPE_CHECKING:
    from pipeline.sources.capture import Capture
    from pipeline.sources.movie import Movie

__all__ = ["FileReader"]

_log = logging.getLogger(__name__)

# After a damaged stretch the decoder goes on, so a failed grab is not yet the end.
_SPARE_GRABS = 4
_MOST_GRABS = 1000
# A count that is only declared may be off; less than this share missing is logged, no error.
_TOLERATED_SHARE = 0.1


class FileReader(CaptureReader["Capture | Movie"]):
    """Frames of one video file, implementing ``Reader``.

    Where planes are wanted, and PyAV is installed and can hand them out, it reads; else OpenCV
    does, as BGR.
    Stamps are when a frame was read or, with ``realtime``, when it was due by the file's own
    time. With ``loop`` the file starts again for ever. A file that was cut or is damaged
    delivers what can be decoded, then raises SourceError: it does when its structure says
    that bytes are missing at the end and frames are missing too, and when more than a tenth
    of the declared frames and of the play time are missing. Fewer missing are logged.
    """

    live = False

    def __init__(self, settings: SourceSettings, clock: Clock) -> None:
        self._path = str(settings.uri)
        super().__init__(redact(self._path))
        self._clock = clock
        self._loop = settings.loop
        self._realtime = settings.realtime
        self._fps = settings.fps
        self._planes = settings.pixels == "auto"
        self._pace: Pace | None = None
        self._container = Container()
        self._declared = 0
        self._rate = 0.0
        self._delivered = 0
        self._first_ns = 0
        self._last_ns = 0

    def open(self) -> FrameFormat:
        """Open the file. SourceError when it is absent, empty or no video."""
        self._check_file()
        self._container = inspect(self._path)
        self._capture = self._open_capture()
        try:
            found = self._capture.frame_format()
        except SourceError:
            self.close()
            raise
        self._declared = found.frames or 0
        self._rate = found.fps or 0.0
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
            self._check_complete()
            if not self._loop:
                break
            self._restart()
            if self._seek_start(capture):
                return self._stamp(capture)
            self.close()
            capture = self._capture = self._open_capture()
        return None

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

    def _open_capture(self) -> Capture | Movie:
        # Absolute, as FFmpeg takes "name:rest" for a protocol.
        path = os.path.abspath(self._path)
        # At a cut more of them would cost the last pictures.
        threads = 1 if self._container.cut else _decoder_threads()
        movie = _movie(path, self._where, threads) if self._planes else None
        return movie or self._open_with_opencv(path)

    def _open_with_opencv(self, path: str) -> Capture:
        # Tens of megabytes that are not needed where PyAV reads.
        import cv2

        from pipeline.sources.capture import Capture
        from pipeline.sources.videoio import ffmpeg_backend

        try:
            capture = Capture(path, ffmpeg_backend(), self._where)
        except SourceError as error:
            if self._container.cut:
                raise SourceError(
                    f"{self._where}: the file is cut off and its index, which stood at the "
                    "end, is missing"
                ) from error
            raise SourceError(f"{self._where}: not a video file that can be decoded") from error
        # FFmpeg draws text files as pictures of their text.
        if int(capture.get(cv2.CAP_PROP_FOURCC)) == cv2.VideoWriter.fourcc(*"ansi"):
            capture.close()
            raise SourceError(f"{self._where}: a text file, not a video")
        return capture

    def _advance(self, capture: Capture | Movie) -> bool:
        missing = max(0, self._declared - self._delivered)
        for _ in range(min(_MOST_GRABS, missing + _SPARE_GRABS)):
            if self._stop.is_set():
                return False
            if capture.grab():
                return True
        return False

    def _stamp(self, capture: Capture | Movie) -> int | None:
        position = capture.position_ns()
        if self._delivered == 0:
            self._first_ns = position
        self._delivered += 1
        self._last_ns = max(self._last_ns, position)
        return self._clock.now() if self._pace is None else self._pace.wait(self._stop, position)

    def _restart(self) -> None:
        self._delivered = 0
        self._last_ns = 0
        if self._pace is not None:
            self._pace.restart()

    def _seek_start(self, capture: Capture | Movie) -> bool:
        """Grab the first frame again. Seeking keeps the decoder, but not every format can."""
        if not (capture.rewind() and capture.grab()):
            return False
        return capture.position_ns() == self._first_ns

    def _check_complete(self) -> None:
        delivered, declared = self._delivered, self._declared
        if delivered == 0:
            raise SourceError(f"{self._where}: no frame of it can be decoded")
        missing = declared - delivered
        if missing <= 0:
            return
        told = f"{self._where}: {delivered} of {declared} frames could be decoded"
        if self._container.cut:
            raise SourceError(f"{told}; the file is cut off")
        if missing > declared * _TOLERATED_SHARE and self._ended_early():
            raise SourceError(f"{told}; the file is damaged")
        _log.warning("%s", told)

    def _ended_early(self) -> bool:
        seconds = self._container.seconds or (self._declared / self._rate if self._rate else 0.0)
        played = (self._last_ns - self._first_ns) / 1e9 + (1 / self._rate if self._rate else 0.0)
        return played < seconds * (1 - _TOLERATED_SHARE)


def _decoder_threads() -> int:
    """One for each core, and one that waits to hand its picture over."""
    return len(os.sched_getaffinity(0)) + 1


def _movie(path: str, where: str, threads: int) -> Movie | None:
    try:
        from pipeline.sources.movie import open_movie
    except ImportError:  # PyAV comes with the extra "streams"
        return None
    return open_movie(path, where, threads)
