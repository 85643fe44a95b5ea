"""Taking turns between the channels of several cameras, by weight."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Generic, TypeVar

from pipeline.flow.channel import Channel, ChannelClosed

__all__ = ["FairShare"]

T = TypeVar("T")


@dataclass
class _Turn(Generic[T]):
    channel: Channel[T]
    step: float
    due: float


class FairShare(Generic[T]):
    """Gives the next item of the channel that had the smallest share so far.

    Each item costs its channel 1 / weight; the cheapest channel with something waiting is
    next, so none starves and a channel that was silent does not catch up. One consumer.
    """

    def __init__(self) -> None:
        self._turns: dict[str, _Turn[T]] = {}
        self._now = 0.0
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def add(self, name: str, channel: Channel[T], weight: float = 1.0) -> None:
        """Take from this channel, too."""
        channel.on_change = self._wake
        self._turns[name] = _Turn(channel, 1 / weight, self._now)
        self._wake()

    def remove(self, name: str) -> None:
        """Forget a channel; what waits in it is not touched."""
        turn = self._turns.pop(name, None)
        if turn is not None:
            turn.channel.on_change = None
        self._wake()

    def close(self) -> None:
        """End once all channels are closed and empty, even if others could still be added."""
        self._closed = True
        self._wake()

    def take(self) -> T | None:
        """The next item if one waits."""
        next_one: _Turn[T] | None = None
        for turn in self._turns.values():
            if len(turn.channel) and (next_one is None or turn.due < next_one.due):
                next_one = turn
        if next_one is None:
            return None
        self._now = max(self._now, next_one.due)
        next_one.due = self._now + next_one.step
        return next_one.channel.take()

    async def get(self) -> T:
        """Wait for the next item; ChannelClosed once all channels are closed and empty."""
        while (item := self.take()) is None:
            if self._closed and all(turn.channel.closed for turn in self._turns.values()):
                raise ChannelClosed
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return item

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
