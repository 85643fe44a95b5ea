"""A server of raw bytes: one function answers each connection, as odd as it likes."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Self

__all__ = ["RawServer", "header", "read_head"]

_LONGEST = 60.0  # seconds that a connection may wait for a client that does nothing


class RawServer:
    """Listens on a free port of 127.0.0.1 and calls ``answer`` with each connection.

    It runs in a thread of this process for each connection. What ``answer`` does to a client that
    left (OSError) is no error.
    """

    def __init__(
        self, answer: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None
    ) -> None:
        self._answer = answer
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listening.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        with self._lock:
            for link in self._open:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(link, socket.SHUT_RDWR)

    def _listen(self) -> None:
        while True:
            try:
                link, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        link.settimeout(_LONGEST)
        with self._lock:
            self._open.add(link)
        made = link
        try:
            if self._tls is not None:
                made = self._tls.wrap_socket(link, server_side=True)
                with self._lock:
                    self._open = self._open - {link} | {made}
            self._answer(made)
        except OSError:
            pass
        finally:
            with self._lock:
                self._open.discard(link)
                self._open.discard(made)
            made.close()


def read_head(link: socket.socket) -> bytes:
    """A request up to its empty line; b"" when the client left."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = link.recv(1)
        if not byte:
            return b""
        head += byte
    return head


def header(head: bytes, name: bytes) -> bytes:
    """Value of one header of a request; b"" if there is none."""
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.lower() == name.lower():
            return value.strip()
    return b""
