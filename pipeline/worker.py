"""Threads for calls that block, one for each part, reachable from the event loop.

asyncio's own thread pool is not used: its threads are joined at exit, so one stuck
read would keep the process alive, and consecutive calls change threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

__all__ = ["Worker", "call_in_thread"]

P = ParamSpec("P")
T = TypeVar("T")

# No closure: the traceback of an error would keep it, and with it the arguments.
_Told = asyncio.Future[Any] | Callable[[BaseException], object]
_Job = tuple[_Told, Callable[..., Any], tuple[Any, ...], dict[str, Any]]
_Outcome = tuple[_Told, Any, BaseException | None]

# A future cannot take them, or the one who awaits it would take them for its own cancel or end.
_CONTROL = (asyncio.CancelledError, StopIteration, StopAsyncIteration, GeneratorExit)


class Worker:
    """One thread that runs calls in the order given; it does not hold up the exit.

    The loop is woken once for all calls that ended since it last looked. Calls see the context
    variables of the worker's creator. What is control flow in a coroutine (StopIteration,
    CancelledError and the like) is a RuntimeError of the call that raised it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._outcomes: deque[_Outcome] = deque()
        self._waking = False
        self._ended = self._loop.create_future()
        self._closing = False
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._work,), name=name, daemon=True)
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

    def send(
        self,
        on_error: Callable[[BaseException], object],
        function: Callable[P, object],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Queue a call whose end does not wake the loop; there ``on_error`` gets its error."""
        if self._closing:
            raise RuntimeError(f"thread {self.name!r} is closing")
        self._jobs.put((on_error, function, args, kwargs))

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
            told, function, args, kwargs = job
            if isinstance(told, asyncio.Future) and told.cancelled():
                continue
            outcome: _Outcome
            try:
                outcome = (told, function(*args, **kwargs), None)
            except BaseException as error:  # handed to whoever awaits the call
                outcome = (told, None, _carried(error))
            if isinstance(told, asyncio.Future) or outcome[2] is not None:
                self._post(outcome)
            # Borrowed views must not wait for the next call.
            del job, told, function, args, kwargs, outcome
        self._post((self._ended, None, None))

    def _post(self, outcome: _Outcome) -> None:
        self._outcomes.append(outcome)
        # The loop resets this before it looks, so what is added now is seen.
        if not self._waking:
            self._waking = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self._waking = False
        while self._outcomes:
            told, result, error = self._outcomes.popleft()
            if not isinstance(told, asyncio.Future):
                assert error is not None
                told(error)
            elif told.done():
                continue
            elif error is None:
                told.set_result(result)
            else:
                told.set_exception(error)


def _carried(error: BaseException) -> BaseException:
    if not isinstance(error, _CONTROL):
        return error
    carried = RuntimeError(f"raised {error!r}")
    carried.__cause__ = error
    return carried


async def call_in_thread(name: str, function: Callable[[], T]) -> T:
    """Run one blocking call on a thread of its own; when cancelled it is left to end alone."""
    worker = Worker(name)
    future = worker.submit(function)
    worker.end()
    return await future
