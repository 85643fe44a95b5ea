"""The reader of a URL, chosen by its scheme and by what the server says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pipeline.clock import Clock
from pipeline.contracts import Reader
from pipeline.errors import ConfigError, SourceError
from pipeline.redact import redact
from pipeline.sources.settings import SourceSettings

if TYPE_CHECKING:
    from av.container import InputContainer

__all__ = ["url_reader"]

_URI = ("uri",)
_NEED_HOST = ("rtsp", "rtsps", "http", "https", "rtmp", "rtmps")
_SCHEMES = (*_NEED_HOST, "srt", "udp", "tcp", "rtp")


def _check_url(uri: str) -> None:
    """ConfigError for what no attempt to open it again would mend."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise ConfigError(f"the host is no name and no [address]{_hint(uri)}", _URI) from None
    scheme = parts.scheme.lower()
    if scheme not in (*_SCHEMES, "package"):  # whose own error names the package
        known = ", ".join(f"{each}://" for each in _SCHEMES)
        raise ConfigError(f"{scheme}:// is not known; known are {known}", _URI)
    try:
        _ = parts.port
    except ValueError:
        what = f"the port is no number from 0 to 65535{_hint(uri)}"
        raise ConfigError(what, _URI) from None
    if scheme in _NEED_HOST and not parts.hostname:
        raise ConfigError(f"{scheme}:// needs a host{_hint(uri)}", _URI)
    if not _is_host(parts.hostname or ""):
        raise ConfigError(f"no host can have this name{_hint(uri)}", _URI)


def _is_host(name: str) -> bool:
    """True for an address, and for a name that can be asked for."""
    if not name.isascii():
        try:
            name.encode("idna")
        except UnicodeError:
            return False
    return not re.search(r"[\s\x00-\x20\x7f\"'<>\\^`{|}]", name)


def _hint(uri: str) -> str:
    """Advice where a password seems to have ended the host: an @ stands further behind."""
    ended = re.split(r"[/?#[]", uri.partition("://")[2], maxsplit=1)
    if "@" not in "".join(ended[1:]):
        return ""
    return (
        "; percent-encode what is special in the user and the password: / is %2F, # is %23, "
        "? is %3F, [ is %5B, @ is %40"
    )


def url_reader(settings: SourceSettings, clock: Clock) -> Reader:
    """The reader of a URL: a stream, or a file where it has an end. ConfigError for a bad URL."""
    _check_url(str(settings.uri))
    from pipeline.sources.mjpeg import MjpegReader

    if not str(settings.uri).lower().startswith(("http://", "https://")):
        live = settings.live is not False
        return _reached(settings.model_copy(update={"live": live}), clock)
    from pipeline.sources.http_source import HttpReader

    return HttpReader(settings, clock, MjpegReader, _reached)


def _reached(settings: SourceSettings, clock: Clock) -> Reader:
    """A stream, or a file where it has an end; where that is not set it connects to find out."""
    from pipeline.sources.file import FileReader
    from pipeline.sources.stream import StreamReader, has_end, reach
    from pipeline.sources.tcp import tcp_of

    if settings.live:
        return StreamReader(settings, clock)
    where, tcp = redact(str(settings.uri)), tcp_of(settings)

    def connect() -> InputContainer:
        reached = reach(settings, tcp=tcp)
        if isinstance(reached, str):
            raise SourceError(f"{where}: {reached}")
        return reached

    if settings.live is False:
        return FileReader(settings, clock, connect, tcp)
    container = connect()
    if not has_end(container):
        return StreamReader(settings, clock, container)
    first = [container]
    return FileReader(settings, clock, lambda: first.pop() if first else connect())
