"""Sinks of results, by their kind in the table of parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pipeline import parts
from pipeline.errors import SinkError, optional
from pipeline.sinks.settings import (
    STANDARD_OUTPUT,
    ConsoleSettings,
    JsonlSettings,
    OwnSinkSettings,
    SinkBase,
    SinkSettings,
    VideoSettings,
)

if TYPE_CHECKING:
    from pipeline.contracts import Sink

__all__ = [
    "STANDARD_OUTPUT",
    "ConsoleSettings",
    "JsonlSettings",
    "OwnSinkSettings",
    "SinkBase",
    "SinkSettings",
    "VideoSettings",
    "make_sink",
]


def make_sink(
    settings: ConsoleSettings | JsonlSettings | VideoSettings | OwnSinkSettings,
) -> Sink:
    """The sink of these settings, not yet open. Its file's path must be resolved."""
    if isinstance(settings, OwnSinkSettings):
        from pipeline.sinks.own import OwnSink

        return OwnSink(settings)
    with optional("av", "streams", SinkError):
        make = parts.load("sinks", settings.kind)
    return cast("Sink", make(settings))
