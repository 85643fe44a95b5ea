"""One HTTP answer that goes on and on, read with deadlines that hold even for a trickle."""

from __future__ import annotations

import http.client
import io
import re
import socket
import ssl
import time
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, unquote_to_bytes, urljoin, urlsplit

from pipeline.errors import SourceError
from pipeline.sources import http_auth as challenge
from pipeline.sources.tcp_connection import TcpConnection

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["HttpStream"]

_MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)


class _Wire(io.RawIOBase):
    """A socket as the file that ``http.client`` reads; ``deadline`` holds for all that follows."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self.deadline = 0.0

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, 65536)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._link.settimeout(left)
        return self._link.recv_into(buffer)


class HttpStream:
    """A GET and its answer. ``where`` begins every message and must hold no secrets.

    User and password of the URL are sent only when the server asks for them, as Digest or Basic,
    and only to the scheme, host and port that they were given for. https
    checks the certificate against those that Python's ``ssl`` trusts (``SSL_CERT_FILE``
    names others). Every failure is a SourceError; none has the URL in it.
    """

    def __init__(self, url: str, where: str) -> None:
        self._url = url
        self._where = where
        self._link = TcpConnection()
        self._wire: _Wire | None = None
        self._answer: http.client.HTTPResponse | None = None
        self.content_type = ""

    def open(self, seconds: float) -> None:
        """Ask, and read the head of the answer, all within ``seconds``."""
        failure = self._open(seconds)
        if failure is not None:
            self.close()
            raise SourceError(f"{self._where}: {failure}")

    def read(self, deadline: float) -> bytes:
        """Received bytes, at least one, by ``deadline`` (``time.monotonic``); b"" at the end.

        SourceError when nothing came or the connection broke.
        """
        if self._answer is None or self._wire is None:
            raise SourceError(f"{self._where}: not open")
        self._wire.deadline = deadline
        try:
            return self._answer.read1(65536)
        except TimeoutError:
            failure = "nothing came in time"
        except (OSError, ValueError, http.client.HTTPException):
            failure = "the connection broke"
        if self._link.interrupted:
            return b""
        raise SourceError(f"{self._where}: {failure}")

    def interrupt(self) -> None:
        """Make what waits end at once, and all that follows. From any thread, at any time."""
        self._link.interrupt()

    def close(self) -> None:
        """Disconnect; only where ``read`` is called."""
        if self._answer is not None:
            self._answer.close()
        self._answer = self._wire = None
        self._link.close()

    def _open(self, seconds: float) -> str | None:
        """Connect; the reason if that failed, None if the answer's body follows."""
        deadline = time.monotonic() + seconds
        try:
            return self._follow(deadline)
        except TimeoutError:
            return f"it did not answer within {seconds:g} s"
        except ssl.SSLCertVerificationError as error:
            return (
                f"its certificate is not trusted ({error.verify_message}); SSL_CERT_FILE can "
                "name a file with certificates to trust"
            )
        except ssl.SSLError as error:
            reason = (error.reason or "it was broken off").replace("_", " ").lower()
            return f"it does not speak TLS as it should: {reason}"
        except http.client.RemoteDisconnected:
            return "it closed the connection without an answer"
        except OSError as error:
            return f"it cannot be reached: {error.strerror or type(error).__name__}"
        except (ValueError, http.client.HTTPException):
            return "it is no HTTP address, or its answer is no HTTP"

    def _follow(self, deadline: float) -> str | None:
        """Ask, and go where the answers lead; why there is none, None when its body follows."""
        url, secret = urlsplit(self._url), b""
        for _ in range(_MOST_REDIRECTS):
            status, headers = self._ask(url, secret, deadline)
            target = headers.get("Location")
            if status == 200:
                self.content_type = headers.get("Content-Type", "")
                return None
            if status == 401 and secret:
                return "the user or the password is wrong"
            if status == 401:
                asked = headers.get_all("WWW-Authenticate") or []
                secret, failure = _authorization(url, urlsplit(self._url), asked)
                if not secret:
                    return failure
            elif status in _REDIRECTS and target:
                url, secret = urlsplit(urljoin(url.geturl(), target)), b""
            else:
                return f"it answered with HTTP status {status}"
            self.close()
        return "it sends from one address to another"

    def _ask(
        self, url: SplitResult, secret: bytes, deadline: float
    ) -> tuple[int, http.client.HTTPMessage]:
        link = self._connect(url, deadline)
        wire = self._wire = _Wire(link)
        wire.deadline = deadline
        lines = [f"GET {_target(url)} HTTP/1.1", f"Host: {_host(url)}", "Accept: */*"]
        lines += ["Connection: close", "User-Agent: npu-pipeline"]
        head = [line.encode("latin-1", "replace") for line in lines]
        head += [b"Authorization: " + secret] if secret else []
        link.sendall(b"\r\n".join([*head, b"", b""]))
        self._answer = http.client.HTTPResponse(wire, method="GET")  # type: ignore[arg-type]
        self._answer.begin()
        return self._answer.status, self._answer.headers

    def _connect(self, url: SplitResult, deadline: float) -> socket.socket:
        scheme, host, port = _origin(url)
        if scheme not in ("http", "https") or not host:
            raise ValueError
        tls = ssl.create_default_context() if scheme == "https" else None
        return self._link.connect(host, port, deadline, tls)


def _origin(url: SplitResult) -> tuple[str, str, int]:
    """Scheme, host and port: what a user and a password are for."""
    return url.scheme, url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def _host(url: SplitResult) -> str:
    host = url.netloc.rpartition("@")[2]
    return host if host.isascii() else host.encode("idna").decode()


def _target(url: SplitResult) -> str:
    """Path and query as they go into a request: nothing in them can end its first line."""
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    return re.sub(r"[^!-~]", lambda char: quote(char[0]), target)


def _authorization(url: SplitResult, given: SplitResult, asked: list[str]) -> tuple[bytes, str]:
    """The header's value for what the server asks; if it is empty, why there is none."""
    if given.username is None:
        return b"", "it asks for a user and a password"
    if _origin(url) != _origin(given):
        return b"", "it leads to another address, which asks for a user and a password of its own"
    user, password = unquote_to_bytes(given.username), unquote_to_bytes(given.password or "")
    told = challenge.answer(asked, user, password, _target(url))
    kinds = ", ".join(dict.fromkeys(challenge.schemes(asked))) or "none"
    return told or b"", f"it asks for a kind of login that is not known here ({kinds})"
