"""A sink that is not built in."""

from __future__ import annotations

from pipeline.contracts import StreamInfo
from pipeline.memory.results import Result
from pipeline.parts import OwnProxy, call_optional

__all__ = ["OwnSink"]


class OwnSink(OwnProxy):
    """Makes the sink on its thread, and adds the members that it may leave out."""

    def open(self, stream: StreamInfo) -> None:
        """Make it and open it."""
        self._part = self._make()
        call_optional(self._part, "open", stream)

    def begin(self) -> None:
        """Begin."""
        call_optional(self._part, "begin")

    def write(self, result: Result) -> None:
        """Give it one result."""
        self._part.write(result)
