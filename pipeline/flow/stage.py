"""Base of the stages: a thread for blocking calls, opened and closed in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from pipeline.errors import PipelineError, unexpected
from pipeline.worker import Worker

__all__ = ["Stage"]

T = TypeVar("T")


class Stage:
    """``open``, then ``run`` until its input ends, then ``close``, whatever happened between.

    A subclass gives ``_open`` and ``_close``, called on the stage's thread: ``_close`` exactly
    once after a successful ``_open``, even when ``open`` was cancelled while it went on. What
    its part raises and is no ``kind`` becomes one that names the part.
    """

    kind: ClassVar[type[PipelineError]] = PipelineError

    def __init__(self, name: str) -> None:
        self.name = name
        self._worker: Worker | None = None
        self._opened = False
        self._closed: asyncio.Future[None] | None = None

    async def open(self) -> Any:
        """Start the thread and open there."""
        self._worker = Worker(self.name)
        return await self._do(self._open_on_thread)

    async def run(self) -> None:
        """Work until the input ends."""
        raise NotImplementedError

    async def close(self, timeout: float) -> bool:
        """Close on the thread and join it; False when it is stuck and was abandoned.

        What ``_close`` raises is raised here.
        """
        if self._worker is None:
            return True
        if self._closed is None:
            self._closed = self._worker.submit(self._close_on_thread)
        if not await self._worker.close(timeout):
            self._closed.add_done_callback(_swallow)
            return False
        await self._blaming(self._closed, self.kind)
        return True

    def _call(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        assert self._worker is not None, "the stage is not open"
        return self._worker.submit(function, *args)

    async def _do(self, function: Callable[..., T], *args: Any) -> T:
        """Call the part on the thread."""
        return await self._blaming(self._call(function, *args), self.kind)

    async def _blaming(self, call: asyncio.Future[T], kind: type[PipelineError]) -> T:
        try:
            return await call
        except kind:
            raise
        except Exception as error:
            raise unexpected(kind, self.name, error) from error

    def _open_on_thread(self) -> Any:
        opened = self._open()
        self._opened = True
        return opened

    def _close_on_thread(self) -> None:
        if self._opened:
            self._opened = False
            self._close()

    def _open(self) -> Any:
        return None

    def _close(self) -> None:
        pass


def _swallow(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()
