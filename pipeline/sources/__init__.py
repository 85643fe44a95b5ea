"""Sources of frames, by their kind in the table of parts."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Any, Literal, cast

from pipeline import parts
from pipeline.contracts import Reader
from pipeline.errors import ConfigError, SourceError, optional
from pipeline.paths import is_pipe, is_url
from pipeline.sources.settings import IMAGE_ENDINGS, STANDARD_INPUT, SourceSettings

if TYPE_CHECKING:
    from pipeline.clock import Clock

__all__ = ["SourceSettings", "kind_of", "make_reader", "overflow_of", "queue_of"]

Kind = Literal["camera", "file", "gstreamer", "images", "own", "pipe", "stream", "synthetic"]
Overflow = Literal["block", "latest", "drop_newest"]
_BLOCK_QUEUE = 4


def kind_of(settings: SourceSettings) -> Kind:
    """Kind of a source, from its URI and, for a path, from its ending and what is there.

    ``own``: one that is not built in.
    """
    uri = settings.uri
    if settings.kind is not None or settings.ready:
        return "own"
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
            given = type(source).__name__
            raise ConfigError(
                f"source: needed settings, an async iterable or a Reader, got {given}"
            )
        return ArraysReader(source, clock, loop or asyncio.get_running_loop(), live=live)
    kind = kind_of(source)
    if isinstance(source.given, AsyncIterable):
        return make_reader(source.given, clock, loop, live=source.comes_live)
    if kind == "own":
        from pipeline.sources.own import OwnReader

        return OwnReader(source)
    # OpenCV and PyAV are not needed for synthetic frames.
    with optional("av", "streams", SourceError):
        return cast(Reader, parts.load("sources", kind)(source, clock))


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
