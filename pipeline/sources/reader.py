"""Base of the readers that own one open capture."""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar

from pipeline.errors import SourceError
from pipeline.memory.frame import Image

__all__ = ["CaptureReader"]


class _Decoder(Protocol):
    def retrieve(self, buffer: Image) -> None: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=_Decoder)


class CaptureReader(Generic[C]):
    """They give ``open`` and ``grab``, and set ``_capture``."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._stop = threading.Event()
        self._capture: C | None = None

    def retrieve(self, buffer: Image) -> None:
        """Write the grabbed frame into ``buffer``, which has the format's shape."""
        self._opened().retrieve(buffer)

    def interrupt(self) -> None:
        """Make ``grab`` return None from now on, once a read that waits returns."""
        self._stop.set()

    def close(self) -> None:
        """Free the capture."""
        if self._capture is not None:
            self._capture.close()
            self._capture = None

    def _opened(self) -> C:
        if self._capture is None:
            raise SourceError(f"{self._where}: not open")
        return self._capture
