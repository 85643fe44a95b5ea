"""Video that comes through a pipe: standard input or a FIFO, as a container or as raw frames."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from typing import TYPE_CHECKING

import av

from pipeline.clock import Clock
from pipeline.errors import ConfigError, SourceError
from pipeline.sources.file import FileReader
from pipeline.sources.pace import DEFAULT_FPS
from pipeline.sources.pyav_frames import open_container
from pipeline.sources.settings import STANDARD_INPUT, SourceSettings

if TYPE_CHECKING:
    from av.container import InputContainer

__all__ = ["Pipe", "pipe_reader"]


def pipe_reader(settings: SourceSettings, clock: Clock) -> FileReader:
    """The reader of a pipe. ConfigError when the settings do not fit one."""
    if settings.loop:
        raise ConfigError("what a pipe brings cannot be read again", ("loop",))
    if settings.format is not None and not (settings.width and settings.height):
        raise ConfigError("raw frames need width and height", ("format",))
    pipe = Pipe(settings)
    return FileReader(settings, clock, pipe.connect, pipe)


class Pipe:
    """The reading end, as the file that PyAV reads; ``interrupt`` ends a read that waits.

    What it delivers once cannot be read again.
    """

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._path = str(settings.uri)
        self._where = "standard input" if self._path in STANDARD_INPUT else self._path
        self._lock = threading.Lock()
        self._descriptor = self._wake = -1
        self._stopped = False

    def connect(self) -> InputContainer:
        """Open it and wait for the data that show the format. SourceError if they do not come."""
        with self._lock:
            self._descriptor = self._open()
            self._wake = os.eventfd(int(self._stopped), os.EFD_CLOEXEC)
        settings = self._settings
        try:
            if settings.format is None:
                return open_container(self)
            options = {
                "video_size": f"{settings.width}x{settings.height}",
                "pixel_format": settings.format,
                "framerate": f"{settings.fps or DEFAULT_FPS:f}",
            }
            return open_container(self, format="rawvideo", options=options)
        except (av.FFmpegError, ValueError) as error:
            self.close()
            raise SourceError(
                f"{self._where}: no video that can be read from a pipe; "
                "raw frames need format, width and height"
            ) from error

    def read(self, size: int) -> bytes:
        """Read some bytes as soon as there are any; none at the end and once interrupted."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        ready = dict(poll.poll())
        if self._wake in ready:
            return b""
        with contextlib.suppress(OSError):
            return os.read(self._descriptor, size)
        return b""

    def interrupt(self) -> None:
        """Make a waiting ``read`` return, and all that follow. From any thread, at any time."""
        with self._lock:
            self._stopped = True
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Free the descriptors; only where ``read`` is called."""
        with self._lock:
            for descriptor in (self._descriptor, self._wake):
                if descriptor >= 0:
                    os.close(descriptor)
            self._descriptor = self._wake = -1

    def _open(self) -> int:
        try:
            if self._path not in STANDARD_INPUT:
                # Not blocking, or it would wait here for whoever writes.
                return os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if os.isatty(0):
                raise SourceError(f"{self._where}: a terminal, no pipe")
            return os.dup(0)
        except OSError as error:
            raise SourceError(f"{self._where}: {error.strerror}") from error
