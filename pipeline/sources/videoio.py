"""OpenCV's video input, kept quiet.

FFmpeg and OpenCV print to standard error by themselves. What matters of it reaches the user
as an error of this package, so FFmpeg is silent while a capture of this package is
open and OpenCV's logger while one is being opened. Both levels are set in the process, never
through the environment, and put back afterwards.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2

__all__ = ["error_line", "ffmpeg_backend", "mute_ffmpeg", "quiet_opencv", "unmute_ffmpeg"]

_AV_LOG_QUIET = -8


class _Silence:
    """A log level that is held down while at least one user wants it, then put back."""

    def __init__(self, get: Callable[[], int], put: Callable[[int], object], silent: int) -> None:
        self._get = get
        self._put = put
        self._silent = silent
        self._lock = threading.Lock()
        self._users = 0
        self._before = silent

    def acquire(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before = self._get()
                self._put(self._silent)
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            # Somebody else may have set a level meanwhile; theirs stays.
            if self._users == 0 and self._get() == self._silent:
                self._put(self._before)


_opencv = _Silence(
    cv2.utils.logging.getLogLevel,
    cv2.utils.logging.setLogLevel,
    cv2.utils.logging.LOG_LEVEL_SILENT,
)


@contextmanager
def quiet_opencv() -> Iterator[None]:
    """OpenCV's own logger says nothing inside."""
    _opencv.acquire()
    try:
        yield
    finally:
        _opencv.release()


def _find_ffmpeg() -> _Silence | None:
    """The log level of the FFmpeg that OpenCV brought; None when it has none of its own."""
    with quiet_opencv():
        # OpenCV sets FFmpeg's level when it uses it first, so that has to be behind us.
        cv2.VideoCapture("", ffmpeg_backend())
    for path in Path(cv2.__file__).parent.parent.glob("opencv*.libs/libavutil*"):
        try:
            library = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            return _Silence(library.av_log_get_level, library.av_log_set_level, _AV_LOG_QUIET)
        except (OSError, AttributeError):
            continue
    return None


_ffmpeg: _Silence | None = None
_ffmpeg_searched = False
_search_lock = threading.Lock()


def mute_ffmpeg() -> None:
    """Silence FFmpeg until the matching ``unmute_ffmpeg``; calls may nest, in any thread."""
    global _ffmpeg, _ffmpeg_searched
    with _search_lock:
        if not _ffmpeg_searched:
            _ffmpeg = _find_ffmpeg()
            _ffmpeg_searched = True
    if _ffmpeg is not None:
        _ffmpeg.acquire()


def unmute_ffmpeg() -> None:
    """End one ``mute_ffmpeg``."""
    if _ffmpeg is not None:
        _ffmpeg.release()


def ffmpeg_backend() -> int:
    """OpenCV's FFmpeg backend, or any backend where OpenCV was built without it."""
    # With any backend allowed a name such as "%d.mp4" would be taken for a numbered sequence.
    known = cv2.videoio_registry.getBackends()
    return int(cv2.CAP_FFMPEG if cv2.CAP_FFMPEG in known else cv2.CAP_ANY)


def error_line(error: cv2.error) -> str:
    """OpenCV's error on one line."""
    return " ".join(str(getattr(error, "err", None) or error).split())
