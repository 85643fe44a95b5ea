"""Sinks of results; ``make_sink`` chooses by the kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import SinkError, optional
from pipeline.sinks.settings import (
    STANDARD_OUTPUT,
    ConsoleSettings,
    JsonlSettings,
    SinkSettings,
    VideoSettings,
)

if TYPE_CHECKING:
    from pipeline.contracts import Sink

__all__ = [
    "STANDARD_OUTPUT",
    "ConsoleSettings",
    "JsonlSettings",
    "SinkSettings",
    "VideoSettings",
    "make_sink",
]


def make_sink(settings: ConsoleSettings | JsonlSettings | VideoSettings) -> Sink:
    """The sink that the settings are for, not yet open. Its file's path must be resolved."""
    match settings:
        case ConsoleSettings():
            from pipeline.sinks.console import ConsoleSink

            return ConsoleSink(settings)
        case JsonlSettings():
            from pipeline.sinks.jsonl import JsonlSink

            return JsonlSink(settings)
        case VideoSettings():
            with optional("av", "streams", SinkError):
                from pipeline.sinks.video import VideoSink

            return VideoSink(settings)
