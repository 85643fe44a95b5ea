"""Channels: what waits, what is dropped and why, and that nothing is ever lost unseen."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.flow.channel import Channel, ChannelClosed, Overflow

Dropped = list[tuple[int, str]]
POLICIES = get_args(Overflow)


def channel(capacity: int, policy: Overflow) -> tuple[Channel[int], Dropped]:
    dropped: Dropped = []
    return Channel(capacity, policy, lambda item, cause: dropped.append((item, cause))), dropped


async def turns(count: int = 3) -> None:
    """Let other tasks go on until they wait."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_items_come_out_in_order() -> None:
    there, dropped = channel(3, "block")
    for item in range(3):
        await there.put(item)
    assert len(there) == 3
    assert [await there.get() for _ in range(3)] == [0, 1, 2]
    assert len(there) == 0
    assert dropped == []


async def test_block_waits_for_room() -> None:
    there, dropped = channel(1, "block")
    await there.put(0)
    putting = asyncio.ensure_future(there.put(1))
    await turns()
    assert not putting.done()
    assert await there.get() == 0
    await putting
    assert await there.get() == 1
    assert dropped == []


async def test_latest_drops_the_oldest() -> None:
    there, dropped = channel(2, "latest")
    for item in range(5):
        await there.put(item)
    assert dropped == [(0, "latest"), (1, "latest"), (2, "latest")]
    assert [await there.get(), await there.get()] == [3, 4]


async def test_drop_newest_drops_the_new_one() -> None:
    there, dropped = channel(2, "drop_newest")
    for item in range(5):
        await there.put(item)
    assert dropped == [(2, "drop_newest"), (3, "drop_newest"), (4, "drop_newest")]
    assert [await there.get(), await there.get()] == [0, 1]


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_getter_is_woken(policy: Overflow) -> None:
    there, _ = channel(1, policy)
    getting = asyncio.ensure_future(there.get())
    await turns()
    assert not getting.done()
    await there.put(7)
    assert await getting == 7


@pytest.mark.parametrize("policy", POLICIES)
async def test_close_lets_the_rest_be_taken(policy: Overflow) -> None:
    there, dropped = channel(2, policy)
    await there.put(1)
    there.close()
    assert there.closed
    with pytest.raises(ChannelClosed):
        await there.put(2)
    assert await there.get() == 1
    with pytest.raises(ChannelClosed):
        await there.get()
    assert dropped == []


async def test_close_wakes_whoever_waits() -> None:
    empty, _ = channel(1, "block")
    full, dropped = channel(1, "block")
    await full.put(0)
    waiting = [asyncio.ensure_future(empty.get()), asyncio.ensure_future(full.put(1))]
    await turns()
    empty.close()
    full.close()
    for ended in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(ended, ChannelClosed)
    assert await full.get() == 0  # the one that was refused was not taken
    assert dropped == []


async def test_clear_drops_what_waits() -> None:
    there, dropped = channel(3, "block")
    await there.put(1)
    await there.put(2)
    there.clear()
    there.clear()
    assert dropped == [(1, "cancelled"), (2, "cancelled")]
    with pytest.raises(ChannelClosed):
        await there.get()


async def test_a_cancelled_get_takes_nothing() -> None:
    there, _ = channel(1, "block")
    getting = asyncio.ensure_future(there.get())
    await turns()
    await there.put(1)  # wakes it
    getting.cancel()  # before it went on
    with pytest.raises(asyncio.CancelledError):
        await getting
    assert await there.get() == 1


async def test_a_cancelled_put_gives_nothing() -> None:
    there, dropped = channel(1, "block")
    await there.put(0)
    putting = asyncio.ensure_future(there.put(1))
    await turns()
    assert await there.get() == 0  # wakes it
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert len(there) == 0
    assert dropped == []


class Game:
    """One producer and one consumer at a channel, each at most one call at a time."""

    def __init__(self, capacity: int, policy: Overflow) -> None:
        self.channel, self.dropped = channel(capacity, policy)
        self.taken: list[int] = []
        self.sent = 0
        self.putting: asyncio.Future[None] | None = None
        self.getting: asyncio.Future[int] | None = None

    async def step(self, kind: str) -> None:
        if kind == "put" and self.putting is None:
            self.putting = asyncio.ensure_future(self.channel.put(self.sent))
            self.sent += 1
        elif kind == "get" and self.getting is None:
            self.getting = asyncio.ensure_future(self.channel.get())
        await turns()
        if self.putting is not None and self.putting.done():
            self.putting.result()
            self.putting = None
        if self.getting is not None and self.getting.done():
            self.taken.append(self.getting.result())
            self.getting = None

    async def end(self, how: str) -> int:
        """Close or clear, and take what is left; the number of items that were handed over."""
        self.channel.close() if how == "close" else self.channel.clear()
        for waiting in (self.getting, self.putting):
            if waiting is not None:
                await asyncio.wait({waiting})
                assert isinstance(waiting.exception(), ChannelClosed)
        while len(self.channel):
            self.taken.append(await self.channel.get())
        return self.sent - (self.putting is not None)


@settings(deadline=None)
@given(
    policy=st.sampled_from(POLICIES),
    capacity=st.integers(1, 4),
    steps=st.lists(st.sampled_from(("put", "get", "turn")), max_size=60),
    end=st.sampled_from(("close", "clear")),
)
def test_every_item_is_taken_or_dropped_once(
    policy: Overflow, capacity: int, steps: list[str], end: str
) -> None:
    async def play() -> None:
        game = Game(capacity, policy)
        for step in steps:
            await game.step(step)
            assert len(game.channel) <= capacity
        handed_over = await game.end(end)
        assert game.taken == sorted(game.taken)
        gone = [item for item, _ in game.dropped]
        assert sorted(game.taken + gone) == list(range(handed_over))
        allowed = {"cancelled"} if policy == "block" else {"cancelled", policy}
        assert {cause for _, cause in game.dropped} <= allowed

    asyncio.run(play())
