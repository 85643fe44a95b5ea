"""Sources of frames; ``make_reader`` chooses the reader by the URI."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pipeline.contracts import Reader, type_of
from pipeline.errors import ConfigError, SourceError, optional
from pipeline.paths import is_pipe, is_url
from pipeline.redact import redact
from pipeline.sources.settings import IMAGE_ENDINGS, STANDARD_INPUT, SourceSettings

if TYPE_CHECKING:
    from av.container import InputContainer

    from pipeline.clock import Clock

__all__ = ["SourceSettings", "kind_of", "make_reader", "overflow_of", "queue_of"]

Kind = Literal["camera", "file", "gstreamer", "images", "pipe", "stream", "synthetic"]
Overflow = Literal["block", "latest", "drop_newest"]


def kind_of(settings: SourceSettings) -> Kind:
    """Kind of a source, from its URI and, for a path, from its ending and what is there."""
    uri = settings.uri
    if isinstance(uri, int) or re.fullmatch(r"/dev/(video\d+|v4l/.+)", uri):
        return "camera"
    if uri.startswith("synthetic:"):
        return "synthetic"
    if uri.startswith("gstreamer:"):
        return "gstreamer"
    if is_url(uri):
        return "stream"
    if uri in STANDARD_INPUT or is_pipe(uri):
        return "pipe"
    return "images" if os.path.isdir(uri) or uri.lower().endswith(IMAGE_ENDINGS) else "file"


def make_reader(
    source: SourceSettings | AsyncIterable[Any] | Reader,
    clock: Clock,
    loop: asyncio.AbstractEventLoop | None = None,
    *,
    live: bool = False,
) -> Reader:
    """A reader, not yet open, for settings or for an async iterable of arrays.

    What is a reader already is returned as it is. Paths must be resolved already
    (``pipeline.paths.resolve``). ``loop`` is where an iterable runs, the running loop by
    default; ``live`` says whether an iterable's items come at their own pace. ConfigError when
    the settings do not fit the kind of source.
    """
    if isinstance(source, Reader):
        return source
    if not isinstance(source, SourceSettings):
        from pipeline.sources.arrays import ArraysReader

        if not isinstance(source, AsyncIterable):
            given = type_of(source)
            raise ConfigError(f"source: needed settings or an async iterable, got {given}")
        return ArraysReader(source, clock, loop or asyncio.get_running_loop(), live=live)
    return _READERS[kind_of(source)](source, clock)


def overflow_of(settings: SourceSettings, live: bool) -> Overflow:
    """The overflow policy: the one that is set, else by whether frames come by the clock."""
    if settings.overflow is not None:
        return settings.overflow
    return "latest" if live or settings.realtime else "block"


def queue_of(settings: SourceSettings, overflow: Overflow) -> int:
    """Number of frames that may wait: as set, else as suits the overflow."""
    if settings.queue is not None:
        return settings.queue
    return _BLOCK_QUEUE if overflow == "block" else 1


_BLOCK_QUEUE = 4
_NEED_HOST = ("rtsp", "rtsps", "http", "https", "rtmp", "rtmps")
_SCHEMES = (*_NEED_HOST, "srt", "udp", "tcp", "rtp")


# Each imports its module when it is wanted: OpenCV and PyAV are not needed for synthetic frames.


def _camera(settings: SourceSettings, clock: Clock) -> Reader:
    from pipeline.sources.camera import CameraReader

    return CameraReader(settings, clock)


def _file(settings: SourceSettings, clock: Clock) -> Reader:
    from pipeline.sources.file import FileReader

    return FileReader(settings, clock)


def _pipe(settings: SourceSettings, clock: Clock) -> Reader:
    if settings.loop:
        raise ConfigError("source.loop: what a pipe brings cannot be read again")
    if settings.format is not None and not (settings.width and settings.height):
        raise ConfigError("source.format: raw frames need width and height")
    with optional("av", "streams", SourceError):
        from pipeline.sources.pipes import Pipe
    from pipeline.sources.file import FileReader

    pipe = Pipe(settings)
    return FileReader(settings, clock, pipe.connect, pipe)


def _gstreamer(settings: SourceSettings, clock: Clock) -> Reader:
    from pipeline.sources.gstreamer import GstreamerReader

    return GstreamerReader(settings, clock)


def _images(settings: SourceSettings, clock: Clock) -> Reader:
    from pipeline.sources.images import ImagesReader

    return ImagesReader(settings, clock)


def _check_url(uri: str) -> None:
    """ConfigError for what no attempt to open it again would mend."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise ConfigError(f"source.uri: the host is no name and no [address]{_hint(uri)}") from None
    scheme = parts.scheme.lower()
    if scheme not in (*_SCHEMES, "package"):  # whose own error names the package
        known = ", ".join(f"{each}://" for each in _SCHEMES)
        raise ConfigError(f"source.uri: {scheme}:// is not known; known are {known}")
    try:
        _ = parts.port
    except ValueError:
        what = f"the port is no number from 0 to 65535{_hint(uri)}"
        raise ConfigError(f"source.uri: {what}") from None
    if scheme in _NEED_HOST and not parts.hostname:
        raise ConfigError(f"source.uri: {scheme}:// needs a host{_hint(uri)}")
    if not _is_host(parts.hostname or ""):
        raise ConfigError(f"source.uri: no host can have this name{_hint(uri)}")


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


def _stream(settings: SourceSettings, clock: Clock) -> Reader:
    _check_url(str(settings.uri))
    with optional("av", "streams", SourceError):
        import av  # noqa: F401 - the readers below need it

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


def _synthetic(settings: SourceSettings, clock: Clock) -> Reader:
    from pipeline.sources.synthetic import SyntheticReader

    return SyntheticReader(settings, clock)


_READERS = {
    "camera": _camera,
    "file": _file,
    "gstreamer": _gstreamer,
    "images": _images,
    "pipe": _pipe,
    "stream": _stream,
    "synthetic": _synthetic,
}
