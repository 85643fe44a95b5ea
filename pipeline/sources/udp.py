"""The first datagram of a UDP stream, waited for in a way that can be interrupted."""

from __future__ import annotations

import ipaddress
import os
import select
import socket
import threading
import time
from urllib.parse import urlsplit

__all__ = ["FirstDatagram"]


class FirstDatagram:
    """Waits for the first datagram before FFmpeg does, whose wait nothing can interrupt."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self._lock = threading.Lock()
        self._interrupted = False
        self._wake = -1

    def ask(self, seconds: float) -> str | None:
        """Wait at most ``seconds``; None when something came, else what was wrong."""
        deadline = time.monotonic() + seconds
        try:
            receiver = self._listen()
        except (OSError, ValueError):
            return None  # FFmpeg will report it
        with self._lock:
            self._wake = os.eventfd(int(self._interrupted), os.EFD_CLOEXEC)
        try:
            poll = select.poll()
            poll.register(receiver, select.POLLIN)
            poll.register(self._wake, select.POLLIN)
            ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
            if self._wake in ready:
                return "interrupted"
            return None if ready else f"nothing came within {seconds:g} s"
        finally:
            with self._lock:
                os.close(self._wake)
                self._wake = -1
            receiver.close()

    def interrupt(self) -> None:
        """Make ``ask`` end at once. From any thread."""
        with self._lock:
            self._interrupted = True
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def _listen(self) -> socket.socket:
        """A socket bound as FFmpeg binds its own, in the group where it is one."""
        address = ipaddress.ip_address(self._host) if self._host else None
        if address is not None and address.version == 6:
            raise ValueError
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            group = str(address) if address is not None and address.is_multicast else ""
            receiver.bind((group, self._port))
            if group:
                request = socket.inet_aton(group) + socket.inet_aton("0.0.0.0")
                receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        except OSError:
            receiver.close()
            raise
        return receiver
