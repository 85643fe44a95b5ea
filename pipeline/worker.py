"""Threads for calls that block, one for each part, reachable from the event loop.

asyncio's own thread pool is not used: its threads are joined at exit, so one stuck
read would keep the process alive, and consecutive calls change threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

__all__ = ["Worker", "call_in_thread"]

P = ParamSpec("P")
T = TypeVar("T")

# No closure: the traceback of an error would keep it, and with it the arguments.
_Job = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Worker:
    """One thread that runs calls in the order given; a ``daemon`` does not hold up the exit."""

    def __init__(self, name: str, *, daemon: bool = True) -> None:
        self.name = name
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._ended = self._loop.create_future()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=daemon)
        self._thread.start()

    def submit(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Queue a call; the future has its result. Cancelling it skips a call not yet begun."""
        if self._closing:
            raise RuntimeError(f"thread {self.name!r} is closing")
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((future, function, args, kwargs))
        return future

    def end(self) -> None:
        """Let the thread end after its queued calls; does not wait."""
        if not self._closing:
            self._closing = True
            self._jobs.put(None)

    async def close(self, timeout: float) -> bool:
        """``end`` and wait; False when the thread is still busy after ``timeout`` seconds."""
        self.end()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._ended), timeout)
        if not self._ended.done():
            return False
        self._thread.join()
        return True

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function, args, kwargs = job
            if future.cancelled():
                continue
            outcome: tuple[asyncio.Future[Any], Any, BaseException | None]
            try:
                outcome = (future, function(*args, **kwargs), None)
            except BaseException as error:  # handed to whoever awaits the call
                outcome = (future, None, error)
            self._post(_settle, *outcome)
            # Borrowed views must not wait for the next call.
            del job, future, function, args, kwargs, outcome
        self._post(_settle, self._ended, None, None)

    def _post(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(function, *args)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


async def call_in_thread(name: str, function: Callable[[], T]) -> T:
    """Run one blocking call on a thread of its own; when cancelled it is left to end alone.

    The interpreter waits for it at exit: native code that comes back later would find no
    interpreter, and an engine's library that is being unloaded under its feet crashes.
    """
    worker = Worker(name, daemon=False)
    future = worker.submit(function)
    worker.end()
    return await future
