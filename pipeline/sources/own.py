"""A source that is not built in."""

from __future__ import annotations

from pipeline.memory.frame import FrameFormat, Image
from pipeline.parts import OwnProxy
from pipeline.sources.settings import SourceSettings

__all__ = ["OwnReader"]


class OwnReader(OwnProxy):
    """Makes the reader on its thread, and adds the members that it may leave out."""

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self.live = settings.comes_live

    @property
    def damaged(self) -> int:
        """Frames that its decoder has patched up or refused, if it counts them."""
        return int(getattr(self._part, "damaged", 0))

    def open(self) -> FrameFormat:
        """Make it and open it."""
        self._part = self._make()
        found: FrameFormat = self._part.open()
        return found

    def grab(self) -> int | None:
        """Advance it."""
        stamp: int | None = self._part.grab()
        return stamp

    def retrieve(self, buffer: Image) -> None:
        """Have it write its frame."""
        self._part.retrieve(buffer)
