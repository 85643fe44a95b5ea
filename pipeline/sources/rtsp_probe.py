"""A sign of life from an RTSP server, asked for in a way that can be interrupted."""

from __future__ import annotations

import ssl
import time
from urllib.parse import urlsplit

from pipeline.sources.tcp_connection import TcpConnection

__all__ = ["PROBED", "RtspProbe"]

# Not RTMP: a sender that takes one connection would spend it on this.
PROBED = {"rtsp": 554, "rtsps": 322}
"""Schemes of the servers that can be asked, and their usual ports."""


class RtspProbe:
    """Checks that a server answers before FFmpeg connects, which nothing can interrupt.

    A stuck camera typically accepts connections and then sends nothing.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or PROBED[parts.scheme])
        self._tls = _trusting() if parts.scheme == "rtsps" else None
        host = parts.netloc.rpartition("@")[2]
        self._request = f"OPTIONS {parts.scheme}://{host}/ RTSP/1.0\r\nCSeq: 1\r\n\r\n".encode()
        self._link = TcpConnection()

    def ask(self, seconds: float) -> str | None:
        """Wait for any answer, at most ``seconds``; None when it came, else what was wrong."""
        deadline = time.monotonic() + seconds
        try:
            link = self._link.connect(*self._address, deadline, self._tls)
            link.sendall(self._request)
            link.settimeout(max(0.001, deadline - time.monotonic()))
            link.recv(1)
        except TimeoutError:
            return f"it did not answer within {seconds:g} s"
        except (ConnectionResetError, ssl.SSLError):
            pass  # a way to refuse what it does not know; FFmpeg asks otherwise
        except OSError as error:
            return f"it cannot be reached: {error.strerror or type(error).__name__}"
        finally:
            self._link.close()
        return "interrupted" if self._link.interrupted else None

    def interrupt(self) -> None:
        """Make ``ask`` end at once. From any thread."""
        self._link.interrupt()


def _trusting() -> ssl.SSLContext:
    """Checks no certificate, as FFmpeg does not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
