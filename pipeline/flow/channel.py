"""A bounded hand-over between two stages, with a named policy for when it is full."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

__all__ = ["Channel", "ChannelClosed", "Overflow"]

Overflow = Literal["block", "latest", "drop_newest"]
T = TypeVar("T")


class ChannelClosed(Exception):  # noqa: N818 - like StopAsyncIteration: an end, not a failure
    """The channel is closed: no more items come, or none are taken."""


class Channel(Generic[T]):
    """At most ``capacity`` items, from one producer to one consumer, on one event loop.

    When it is full, ``block`` makes ``put`` wait, ``latest`` drops the oldest waiting item
    and ``drop_newest`` the new one. Each dropped item is given to ``on_drop`` with its cause:
    ``latest``, ``drop_newest`` or ``cancelled``. ``on_change``, when set, is called with each
    item that comes and when it is closed, for a consumer of several channels.
    """

    def __init__(
        self, capacity: int, overflow: Overflow, on_drop: Callable[[T, str], None]
    ) -> None:
        self.capacity = capacity
        self.overflow = overflow
        self._on_drop = on_drop
        self._items: deque[T] = deque()
        self._getter: asyncio.Future[None] | None = None
        self._putter: asyncio.Future[None] | None = None
        self._closed = False
        self.on_change: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._items)

    @property
    def lossy(self) -> bool:
        """True if items are dropped when it is full."""
        return self.overflow != "block"

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return self._closed

    async def put(self, item: T) -> None:
        """Hand over an item; ChannelClosed, with the item not taken, after ``close``."""
        while not self._closed and len(self._items) >= self.capacity:
            if self.overflow == "drop_newest":
                self._on_drop(item, "drop_newest")
                return
            if self.overflow == "latest":
                self._on_drop(self._items.popleft(), "latest")
                break
            self._putter = asyncio.get_running_loop().create_future()
            await self._putter
        if self._closed:
            raise ChannelClosed
        self._items.append(item)
        self._changed()

    async def get(self) -> T:
        """Wait for the next item; ChannelClosed once it is closed and empty."""
        while not self._items:
            if self._closed:
                raise ChannelClosed
            self._getter = asyncio.get_running_loop().create_future()
            await self._getter
        return self.take()

    def take(self) -> T:
        """The next item, which must be there; see ``len``."""
        item = self._items.popleft()
        _wake(self._putter)
        return item

    def close(self) -> None:
        """No more items; those that wait can still be taken."""
        self._closed = True
        self._changed()
        _wake(self._putter)

    def _changed(self) -> None:
        _wake(self._getter)
        if self.on_change is not None:
            self.on_change()

    def clear(self) -> None:
        """Close, and drop what waits."""
        self.close()
        while self._items:
            self._on_drop(self._items.popleft(), "cancelled")


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
