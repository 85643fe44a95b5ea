"""A sink that is not built in."""

from __future__ import annotations

from typing import Any

from pipeline.contracts import StreamInfo
from pipeline.memory.results import Result
from pipeline.parts import call_optional
from pipeline.sinks.settings import OwnSinkSettings

__all__ = ["OwnSink"]


class OwnSink:
    """Makes the sink on its thread, and adds the members that it may leave out."""

    def __init__(self, settings: OwnSinkSettings) -> None:
        self._make = settings.make
        self._sink: Any = None

    def open(self, stream: StreamInfo) -> None:
        """Make it and open it."""
        self._sink = self._make()
        call_optional(self._sink, "open", stream)

    def begin(self) -> None:
        """Begin."""
        call_optional(self._sink, "begin")

    def write(self, result: Result) -> None:
        """Give it one result."""
        self._sink.write(result)

    def interrupt(self) -> None:
        """Interrupt it; without such a method a ``write`` that hangs is abandoned."""
        call_optional(self._sink, "interrupt")

    def close(self) -> None:
        """Close it."""
        call_optional(self._sink, "close")
