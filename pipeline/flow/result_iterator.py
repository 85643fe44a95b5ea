"""The program as a receiver of results: one iterator at a time, and the result it borrows."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from pipeline.errors import ClosedError
from pipeline.flow.channel import Channel, ChannelClosed, Overflow
from pipeline.memory.results import Result, end_loan

__all__ = ["Receiver", "ResultIterator"]

_Task = asyncio.Task[Any]


class Receiver:
    """Results that wait for the program, and the one that it looks at.

    ``lost`` counts one that it does not get. ``left`` is called on the loop when an iterator
    was left before the end. ``used`` is true once there was an iterator.
    """

    def __init__(
        self,
        capacity: int,
        overflow: Overflow,
        lost: Callable[[], None],
        left: Callable[[], None],
    ) -> None:
        self.channel: Channel[Result] = Channel(capacity, overflow, self._drop)
        self.used = False
        self._lost = lost
        self.left = left
        self._iteration: _Iteration | None = None
        self._current: Result | None = None
        self._consumed = asyncio.Event()

    @property
    def holder(self) -> _Task | None:
        """The task whose iterator lives."""
        iteration = self._iteration
        return iteration.task() if iteration is not None and iteration.alive else None

    def iterate(self, ended: Callable[[], Awaitable[None]]) -> ResultIterator:
        """A new iterator for this task. At the end of results it awaits ``ended``.

        ClosedError while another one lives.
        """
        iteration = self._iteration
        if iteration is not None and iteration.alive:
            raise ClosedError(
                f"pipeline: task {iteration.name} iterates already; one loop at a time gets results"
            )
        self.used = True
        self._iteration = _Iteration(self, ended)
        return ResultIterator(self._iteration)

    def release(self) -> None:
        """Receive nothing any more: what waits is lost, and so is what would have come."""
        self.channel.clear()
        self._consumed.set()

    def release_if_left(self) -> None:
        """``release`` unless an iterator lives."""
        if self._iteration is None or not self._iteration.alive:
            self.release()

    async def consumed(self) -> None:
        """Wait until no result will be taken any more."""
        if self.used:
            await self._consumed.wait()

    def take_back(self) -> None:
        """End the loan of the result that was handed out last."""
        result, self._current = self._current, None
        if result is not None:
            end_loan(result)

    async def next(self) -> Result | None:
        """The next result, borrowed; None at the end."""
        self.take_back()
        try:
            self._current = await self.channel.get()
        except ChannelClosed:
            self._consumed.set()
            return None
        return self._current

    def _drop(self, result: Result, cause: str) -> None:
        self._lost()
        end_loan(result)


class _Iteration:
    """One pass over the results: what an iterator does. It does not know the iterator."""

    def __init__(self, receiver: Receiver, ended: Callable[[], Awaitable[None]]) -> None:
        self._ended = False
        self._dropped = False
        self._receiver = receiver
        self._pipeline_ended = ended
        self._loop = asyncio.get_running_loop()
        self._maker = self._last = _reference(asyncio.current_task())
        self._waiting: _Task | None = None

    @property
    def alive(self) -> bool:
        """True while its iterator can be asked, or was asked and gives the answer."""
        return not self._ended and (not self._dropped or self._waiting is not None)

    def task(self) -> _Task | None:
        """The task that iterates: the last one that asked, if it lives, or who began."""
        last = self._last()
        return self._maker() if last is None or last.done() else last

    @property
    def name(self) -> str:
        """Name of the task that iterates."""
        return _name(self.task())

    async def next(self) -> Result:
        """The next result; ClosedError while another task waits for it."""
        if self._ended:
            raise StopAsyncIteration
        if self._waiting is not None:
            raise ClosedError(f"pipeline: task {_name(self._waiting)} waits for the next result")
        self._waiting = asyncio.current_task()
        self._last = _reference(self._waiting)
        try:
            result = await self._receiver.next()
            if result is not None:
                return result
            self._ended = True
            await self._pipeline_ended()
        finally:
            self._waiting = None
        raise StopAsyncIteration

    def close(self) -> None:
        """End before the last result; on the loop."""
        if self._waiting is not None:
            raise ClosedError(f"pipeline: task {_name(self._waiting)} waits for the next result")
        self._ended = True
        self._receiver.left()

    def drop(self) -> None:
        """Note that the iterator was freed. From any thread, as garbage is collected in any."""
        self._dropped = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing comes any more
            self._loop.call_soon_threadsafe(self._receiver.left)


class ResultIterator:
    """Results for one ``async for``, each borrowed until the next one is asked for.

    It ends after the last result, by ``aclose``, or when it is no longer referenced, as after
    ``break``. Another one can then be made of the same pipeline.
    """

    __slots__ = ("__weakref__", "_iteration")

    def __init__(self, iteration: _Iteration) -> None:
        self._iteration = iteration
        weakref.finalize(self, iteration.drop).atexit = False

    def __aiter__(self) -> ResultIterator:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Result]:
        # No coroutine of this object: a traceback that somebody keeps would keep it alive.
        return self._iteration.next()

    async def aclose(self) -> None:
        """End before the last result; the result that was given out last stays valid."""
        self._iteration.close()


def _reference(task: _Task | None) -> Callable[[], _Task | None]:
    return (lambda: None) if task is None else weakref.ref(task)


def _name(task: _Task | None) -> str:
    return "that has ended" if task is None else repr(task.get_name())
