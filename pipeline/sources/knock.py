"""A sign of life from an RTSP server, asked for in a way that can be interrupted."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from pipeline.sources.link import Link

__all__ = ["Knock"]

_PORT = 554


class Knock:
    """Asks whether somebody answers before FFmpeg does, whose waiting nothing can interrupt.

    A server that accepts connections and then says nothing is what stuck cameras are like.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or _PORT)
        host = parts.netloc.rpartition("@")[2]
        self._request = f"OPTIONS rtsp://{host}/ RTSP/1.0\r\nCSeq: 1\r\n\r\n".encode()
        self._link = Link()

    def ask(self, seconds: float) -> str | None:
        """Wait for any answer, at most ``seconds``; None when it came, else what was wrong."""
        deadline = time.monotonic() + seconds
        try:
            link = self._link.connect(*self._address, deadline)
            link.sendall(self._request)
            link.settimeout(max(0.001, deadline - time.monotonic()))
            link.recv(1)
        except TimeoutError:
            return f"it did not answer within {seconds:g} s"
        except ConnectionResetError:
            return None  # a way to refuse what it does not know; FFmpeg asks otherwise
        except OSError as error:
            return f"it cannot be reached: {error.strerror or type(error).__name__}"
        finally:
            self._link.close()
        return "interrupted" if self._link.interrupted else None

    def interrupt(self) -> None:
        """Make ``ask`` end at once. From any thread."""
        self._link.interrupt()
