"""Frames that the embedding program makes itself: an async iterator of arrays."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple

import numpy as np

from pipeline.clock import Clock
from pipeline.errors import SourceError
from pipeline.memory.frame import FrameFormat, Image

__all__ = ["ArraysReader"]

_CLOSE_SECONDS = 1.0


class _End:
    """Return value of ``_next`` after the last item."""


class _Exit(NamedTuple):
    """Result of a call whose iterator wants to end the program."""

    error: BaseException


class ArraysReader:
    """Items of an async iterable as frames, implementing ``Reader``.

    Items are uint8 arrays (height, width, 3) in BGR, contiguous or not, all of the first one's
    size; each is copied once, into the frame buffer, before the iterator is asked for the next.
    The iterator runs on ``loop``, in one copy of the context that the reader was made in; this
    reader's methods must not be called there, as they wait for it. ``live``: whether items come
    at their own pace.
    """

    def __init__(
        self,
        arrays: AsyncIterable[Any],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        live: bool = False,
        fps: float | None = None,
    ) -> None:
        self.live = live
        self._arrays: AsyncIterable[Any] | None = arrays
        self._iterator: AsyncIterator[Any] | None = None
        self._context = contextvars.copy_context()
        self._clock = clock
        self._loop = loop
        self._fps = fps
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._waiting: concurrent.futures.Future[Any] | None = None
        self._count = 0
        self._first: Image | None = None
        self._array: Image | None = None

    def open(self) -> FrameFormat:
        """Wait for the first item, which fixes the size. SourceError when none comes."""
        try:
            self._first = self._fetch()
        except SourceError:
            self.close()
            raise
        if self._first is None:
            self.close()
            reason = "stopped before the first" if self._stop.is_set() else "ended without an"
            raise SourceError(f"arrays: {reason} item")
        height, width, _ = self._first.shape
        return FrameFormat(width, height, self._fps)

    def grab(self) -> int | None:
        """Wait for the next item; None at the end, SourceError when the iterator failed."""
        if self._stop.is_set():
            return None
        self._array, self._first = self._first, None
        if self._array is None:
            self._array = self._fetch()
        return None if self._array is None else self._clock.now()

    def retrieve(self, buffer: Image) -> None:
        """Copy the item into ``buffer``."""
        array, self._array = self._array, None
        if array is None:
            raise SourceError("arrays: nothing was grabbed")
        if array.shape != buffer.shape:
            raise SourceError(
                f"arrays: item {self._count - 1}: needed shape {buffer.shape}, as the first, "
                f"got {array.shape}"
            )
        np.copyto(buffer, array)

    def interrupt(self) -> None:
        """Make a waiting ``open`` or ``grab`` end soon; the iterator sees a cancellation."""
        self._stop.set()
        with self._lock:
            if self._waiting is not None:
                self._waiting.cancel()

    def close(self) -> None:
        """End the iterator (``aclose`` where it has one)."""
        iterator, self._iterator = self._iterator, None
        self._arrays = None
        self._first = self._array = None
        end = getattr(iterator, "aclose", None)
        if end is None or not self._loop.is_running():
            return
        future = asyncio.run_coroutine_threadsafe(self._in_context(lambda: _end(end)), self._loop)
        try:
            future.result(_CLOSE_SECONDS)
        except Exception:  # the iterator's own trouble while ending is no trouble of ours
            future.cancel()

    def _fetch(self) -> Image | None:
        item = self._wait(self._in_context(self._next))
        if isinstance(item, _Exit):
            raise item.error
        if item is _End or (item is None and self._stop.is_set()):
            return None
        where = f"arrays: item {self._count}"
        self._count += 1
        if not isinstance(item, np.ndarray):
            raise SourceError(f"{where}: needed a NumPy array, got {type(item).__name__}")
        fits = item.dtype == np.uint8 and item.ndim == 3 and item.shape[2] == 3
        if not fits or 0 in item.shape:
            raise SourceError(
                f"{where}: needed uint8 (height, width, 3), got {item.dtype} {item.shape}"
            )
        return item

    async def _in_context(self, function: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return await self._loop.create_task(function(), context=self._context)

    async def _next(self) -> Any:
        try:
            if self._iterator is None:
                if self._arrays is None:
                    return _End
                self._iterator = aiter(self._arrays)
            return await anext(self._iterator)
        except StopAsyncIteration:
            return _End
        except (KeyboardInterrupt, SystemExit) as error:
            return _Exit(error)  # in a task it would end the loop now, and again for the reader

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        with self._lock:
            if self._stop.is_set() or not self._loop.is_running():
                coroutine.close()
                self._stop.set()
                return None
            self._waiting = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return self._waiting.result()
        except (concurrent.futures.CancelledError, asyncio.CancelledError):
            if self._stop.is_set():
                return None
            raise SourceError(f"arrays: item {self._count}: the iterator was cancelled") from None
        except (Exception, GeneratorExit) as error:
            told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise SourceError(f"arrays: item {self._count}: {told}") from error
        finally:
            with self._lock:
                self._waiting = None


async def _end(end: Any) -> None:
    await end()
