"""One HTTP answer that goes on and on, read with deadlines that hold even for a trickle."""

from __future__ import annotations

import base64
import http.client
import io
import re
import socket
import ssl
import time
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from pipeline.errors import SourceError
from pipeline.sources.link import Link

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["WebStream"]

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


class WebStream:
    """A GET and its answer. ``where`` begins every message and must hold no secrets.

    User and password of the URL are sent as the server asks for, Basic or Digest. https
    checks the certificate against those that Python's ``ssl`` trusts (``SSL_CERT_FILE``
    names others). Every failure is a SourceError; none has the URL in it.
    """

    def __init__(self, url: str, where: str) -> None:
        self._url = url
        self._where = where
        self._link = Link()
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
        """What has come, at least a byte, by ``deadline`` (``time.monotonic``); b"" at the end.

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
        """Why it failed; None when the answer's body follows."""
        deadline = time.monotonic() + seconds
        url, secret = self._url, ""
        for _ in range(_MOST_REDIRECTS):
            try:
                status, headers = self._ask(urlsplit(url), secret, deadline)
            except TimeoutError:
                return f"it did not answer within {seconds:g} s"
            except ssl.SSLCertVerificationError as error:
                return (
                    f"its certificate is not trusted ({error.verify_message}); SSL_CERT_FILE can "
                    "name a file with certificates to trust"
                )
            except OSError as error:
                return f"it cannot be reached: {error.strerror or type(error).__name__}"
            except (ValueError, http.client.HTTPException):
                return "it is no HTTP address, or its answer is no HTTP"
            if status == 401 and not secret:
                secret = _authorization(url, self._url, headers.get_all("WWW-Authenticate") or [])
                if not secret:
                    return "it asks for a user and a password"
            elif status in _REDIRECTS and (target := headers.get("Location")):
                url, secret = urljoin(url, target), ""
            elif status == 200:
                self.content_type = headers.get("Content-Type", "")
                return None
            else:
                wrong = "the user or the password is wrong"
                return wrong if status == 401 else f"it answered with HTTP status {status}"
            self.close()
        return "it sends from one address to another"

    def _ask(
        self, url: SplitResult, secret: str, deadline: float
    ) -> tuple[int, http.client.HTTPMessage]:
        link = self._connect(url, deadline)
        wire = self._wire = _Wire(link)
        wire.deadline = deadline
        host = url.netloc.rpartition("@")[2]
        lines = [f"GET {_target(url)} HTTP/1.1", f"Host: {host}", "Accept: */*"]
        lines += ["Connection: close", "User-Agent: npu-pipeline"]
        lines += [f"Authorization: {secret}"] if secret else []
        link.sendall("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))
        self._answer = http.client.HTTPResponse(wire, method="GET")  # type: ignore[arg-type]
        self._answer.begin()
        return self._answer.status, self._answer.headers

    def _connect(self, url: SplitResult, deadline: float) -> socket.socket:
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError
        port = url.port or (443 if url.scheme == "https" else 80)
        tls = ssl.create_default_context() if url.scheme == "https" else None
        return self._link.connect(url.hostname, port, deadline, tls)


def _target(url: SplitResult) -> str:
    """Path and query as they go into a request: nothing in them can end its first line."""
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    return re.sub(r"[^!-~]", lambda char: quote(char[0]), target)


def _authorization(url: str, given: str, challenges: list[str]) -> str:
    """The header's value for what the server asks; empty when there is none.

    The password goes to the host that it was given for and to no other.
    """
    parts, origin = urlsplit(url), urlsplit(given)
    if origin.username is None or (parts.hostname, parts.port) != (origin.hostname, origin.port):
        return ""
    user, password = unquote(origin.username), unquote(origin.password or "")
    for challenge in challenges:
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "digest":
            return _digest(parts, user, password, rest)
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _digest(parts: SplitResult, user: str, password: str, challenge: str) -> str:
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, plain, user, password)
    handler = urllib.request.HTTPDigestAuthHandler(passwords)
    asked = urllib.request.parse_keqv_list(urllib.request.parse_http_list(challenge))
    try:
        answer = handler.get_authorization(urllib.request.Request(plain), asked)
    except ValueError:  # an algorithm that Python does not have
        return ""
    return f"Digest {answer}" if answer else ""
