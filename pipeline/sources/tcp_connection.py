"""A TCP connection with deadlines that another thread can break off at any time."""

from __future__ import annotations

import errno
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import Any

__all__ = ["TcpConnection"]


class TcpConnection:
    """One connection after another; none any more after ``interrupt``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.interrupted = False

    def connect(
        self, host: str, port: int, deadline: float, tls: ssl.SSLContext | None = None
    ) -> socket.socket:
        """Connect by ``deadline`` (``time.monotonic``). OSError when that fails.

        TimeoutError when it takes longer or is interrupted.
        """
        failure: OSError = TimeoutError()
        for family, kind, proto, address in _addresses(host, port):
            made = self._keep(socket.socket(family, kind, proto))
            try:
                made.settimeout(max(0.001, deadline - time.monotonic()))
                made.connect(address)
                if tls is not None:
                    # Kept before it waits: wrapping takes the connection out of the socket.
                    wrapped = tls.wrap_socket(
                        made, server_hostname=host, do_handshake_on_connect=False
                    )
                    made = self._keep(wrapped)
                    wrapped.do_handshake()
                return made
            except OSError as error:
                failure = error
                made.close()
        raise failure

    def interrupt(self) -> None:
        """Make what waits end at once, and all that follows. From any thread."""
        with self._lock:
            self.interrupted = True
            if self._socket is not None:
                with suppress(OSError):
                    # Not the method of an SSL socket, which would pull its state away.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Disconnect; only where it is read."""
        with self._lock:
            made, self._socket = self._socket, None
        if made is not None:
            made.close()

    def _keep(self, made: socket.socket) -> socket.socket:
        """Let ``interrupt`` reach this socket."""
        with self._lock:
            if not self.interrupted:
                self._socket = made
                return made
        made.close()
        raise TimeoutError


def _addresses(host: str, port: int) -> list[tuple[int, int, int, Any]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError:  # an empty or overlong part of a name, a NUL
        raise OSError(errno.EINVAL, "no host can have this name") from None
    return [(family, kind, proto, address) for family, kind, proto, _, address in found]
