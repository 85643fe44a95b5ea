"""Events of cameras, engine and sinks while a pipeline runs, for programs to await."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Literal, NamedTuple
from weakref import WeakSet

from pipeline.errors import ClosedError

__all__ = ["Event", "EventHub", "EventLog", "EventStream", "State"]

State = Literal["connecting", "live", "stale", "lost", "ended", "failed", "reopened"]

_log = logging.getLogger(__name__)
_BURST = 5
_BURST_NS = 10_000_000_000

# A listener that sleeps while cameras come and go for hours must not fill the memory.
_CAPACITY = 256


class Event(NamedTuple):
    """``source`` is a camera's name, ``engine`` or a sink's name; ``at_ns`` the clock's time.

    ``kind`` keeps them apart where a camera has the name of another part.

    Cameras: ``connecting``, ``live``, ``stale`` (the frame does not change), ``lost``,
    ``ended``. Engine: ``failed``, ``reopened``. Sinks: ``failed``, ``reopened``.
    """

    source: str
    state: State
    reason: str
    at_ns: int
    kind: Literal["camera", "engine", "sink"] = "camera"


class EventStream:
    """One listener's events; beyond 256 that wait, the oldest are dropped. For one task."""

    def __init__(self, earlier: Iterable[Event] = ()) -> None:
        self._events: deque[Event] = deque(earlier, maxlen=_CAPACITY)
        self._waiter: asyncio.Future[None] | None = None
        self._listener: str | None = None  # name of the task that waits
        self._closed = False

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        if self._listener is not None:
            raise ClosedError(
                f"events: task {self._listener!r} waits for the next one; each listener needs a "
                "stream of its own"
            )
        task = asyncio.current_task()
        self._listener = "" if task is None else task.get_name()
        try:
            await self._some()
        finally:
            self._listener = None
        return self._events.popleft()

    async def _some(self) -> None:
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _send(self, event: Event) -> None:
        self._events.append(event)
        self._wake()

    def _close(self) -> None:
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class EventHub:
    """Hands each event to every listener; never blocks the sender."""

    def __init__(self) -> None:
        self._earlier: deque[Event] = deque(maxlen=_CAPACITY)
        self._streams: WeakSet[EventStream] = WeakSet()
        self._closed = False

    def stream(self) -> EventStream:
        """A new listener, which first gets the events so far."""
        stream = EventStream(self._earlier)
        if self._closed:
            stream._close()
        else:
            self._streams.add(stream)
        return stream

    def send(self, event: Event) -> None:
        """Send an event to every listener."""
        self._earlier.append(event)
        for stream in self._streams:
            stream._send(event)

    def close(self) -> None:
        """No more events; those that wait can still be taken."""
        self._closed = True
        for stream in self._streams:
            stream._close()


class EventLog:
    """The log of one part's states, for programs that await no events.

    A failure is an error, other trouble a warning, its end worth knowing, and all else for
    debugging; so is what is more than five lines in ten seconds.
    """

    def __init__(self) -> None:
        self._troubled = False
        self._state: State | None = None
        self._began_ns = 0
        self._count = 0

    def record(self, event: Event) -> None:
        """Log one event."""
        level = self._level(event)
        self._state = event.state
        if level > logging.DEBUG:
            if event.at_ns - self._began_ns >= _BURST_NS:
                self._began_ns, self._count = event.at_ns, 0
            self._count += 1
            level = level if self._count <= _BURST else logging.DEBUG
        reason = f": {event.reason}" if event.reason else ""
        extra = {"source": event.source, "state": event.state}
        _log.log(level, "%s: %s%s", event.source, event.state, reason, extra=extra)

    def _level(self, event: Event) -> int:
        ended_badly = event.state == "ended" and event.reason
        if event.state in ("stale", "lost", "failed") or ended_badly:
            self._troubled = True
            return logging.ERROR if event.state == "failed" else logging.WARNING
        if event.state in ("live", "reopened"):
            # Live while it is live: the format changed.
            news = self._troubled or self._state == event.state
            self._troubled = False
            return logging.INFO if news else logging.DEBUG
        return logging.DEBUG


Event.__module__ = "pipeline"  # so that pickles survive moves
