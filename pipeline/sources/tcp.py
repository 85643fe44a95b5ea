"""Data of a TCP server, read in a way that can be interrupted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pipeline.sources.pyav_frames import open_container
from pipeline.sources.tcp_connection import TcpConnection

if TYPE_CHECKING:
    import socket

    from av.container import InputContainer

    from pipeline.sources.settings import SourceSettings

__all__ = ["TcpStream", "tcp_of"]


class TcpStream:
    """One connection, as the file that PyAV reads; nothing can interrupt FFmpeg's own ones."""

    def __init__(self, host: str, port: int, open_seconds: float, read_seconds: float) -> None:
        self._address = host, port
        self._open_seconds = open_seconds
        self._read_seconds = read_seconds
        self._deadline: float | None = None  # of the opening
        self._link = TcpConnection()
        self._socket: socket.socket | None = None

    def connect(self, **options: Any) -> InputContainer:
        """Connect and wait for the data that show the format. OSError when that fails."""
        self._deadline = time.monotonic() + self._open_seconds
        self._socket = self._link.connect(*self._address, self._deadline)
        container = open_container(self, **options)
        self._deadline = None
        return container

    def read(self, size: int) -> bytes:
        """Read some bytes as soon as there are any; none at the end and once interrupted."""
        assert self._socket is not None
        seconds = self._read_seconds
        if self._deadline is not None:
            seconds = max(0.001, self._deadline - time.monotonic())
        self._socket.settimeout(seconds)
        return self._socket.recv(size)

    def interrupt(self) -> None:
        """Make what waits end at once, and all that follows. From any thread, at any time."""
        self._link.interrupt()

    def close(self) -> None:
        """Disconnect; only where ``read`` is called."""
        self._link.close()


def tcp_of(settings: SourceSettings) -> TcpStream | None:
    """The connection for a plain tcp:// URL; one with FFmpeg's options (?listen) is FFmpeg's."""
    parts = urlsplit(str(settings.uri))
    if parts.scheme != "tcp" or parts.query or not (parts.hostname and parts.port):
        return None
    return TcpStream(parts.hostname, parts.port, settings.open_timeout_s, settings.read_timeout_s)
