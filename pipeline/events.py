"""What happens to cameras and the engine while a pipeline runs, for a program to await."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal, NamedTuple

__all__ = ["Event", "EventStream", "State"]

State = Literal["connecting", "live", "stale", "lost", "ended", "failed", "reopened"]


class Event(NamedTuple):
    """``source`` is a camera's name, ``engine`` or a sink's name; ``at_ns`` the clock's time.

    Cameras: ``connecting``, ``live``, ``stale`` (the picture does not change), ``lost``,
    ``ended``. Engine: ``failed``, ``reopened``. Sinks: ``failed``, ``reopened``.
    """

    source: str
    state: State
    reason: str
    at_ns: int


class EventStream:
    """Keeps the newest ``capacity`` events that were not taken yet; never blocks the sender."""

    def __init__(self, capacity: int = 256) -> None:
        self._events: deque[Event] = deque(maxlen=capacity)
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def send(self, event: Event) -> None:
        """Add an event; the oldest that nobody took gives way."""
        self._events.append(event)
        self._wake()

    def close(self) -> None:
        """No more events; those that wait can still be taken."""
        self._closed = True
        self._wake()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._events.popleft()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
