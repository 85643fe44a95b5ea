"""A source that is not built in."""

from __future__ import annotations

from typing import Any

from pipeline.memory.frame import FrameFormat, Image
from pipeline.parts import call_optional
from pipeline.sources.settings import SourceSettings

__all__ = ["OwnReader"]


class OwnReader:
    """Makes the reader on its thread, and adds the members that it may leave out."""

    def __init__(self, settings: SourceSettings) -> None:
        self.live = settings.comes_live
        self._make = settings.make
        self._reader: Any = None

    @property
    def damaged(self) -> int:
        """Frames that its decoder has patched up or refused, if it counts them."""
        return int(getattr(self._reader, "damaged", 0))

    def open(self) -> FrameFormat:
        """Make it and open it."""
        self._reader = self._make()
        found: FrameFormat = self._reader.open()
        return found

    def grab(self) -> int | None:
        """Advance it."""
        stamp: int | None = self._reader.grab()
        return stamp

    def retrieve(self, buffer: Image) -> None:
        """Have it write its frame."""
        self._reader.retrieve(buffer)

    def interrupt(self) -> None:
        """Interrupt it; without such a method a ``grab`` that hangs is abandoned."""
        call_optional(self._reader, "interrupt")

    def close(self) -> None:
        """Close it."""
        call_optional(self._reader, "close")
