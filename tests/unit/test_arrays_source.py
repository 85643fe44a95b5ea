"""Arrays of the embedding program: what is delivered, what is refused, and how a wait ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import SourceError
from pipeline.memory.frame import Image
from pipeline.sources import make_reader
from pipeline.sources.arrays import ArraysReader
from tests.unit.playing import WATCHDOG, play


async def _arrays(*items: Any) -> AsyncIterator[Any]:
    for item in items:
        yield item


async def test_arrays_of_any_memory_layout_are_frames() -> None:
    base = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    reader = make_reader(_arrays(base, base[:, ::-1], np.asfortranarray(base)), MonotonicClock())
    assert isinstance(reader, ArraysReader)
    assert not reader.live
    frames, error = await asyncio.to_thread(play, reader)
    assert error is None
    for frame, expected in zip(frames, (base, base[:, ::-1], base), strict=True):
        np.testing.assert_array_equal(frame, expected)


async def test_an_array_is_copied_before_the_next_is_made() -> None:
    shared = np.zeros((2, 2, 3), np.uint8)

    async def reusing() -> AsyncIterator[Image]:
        for value in range(5):
            shared[:] = value
            yield shared

    reader = make_reader(reusing(), MonotonicClock(), asyncio.get_running_loop(), live=True)
    assert reader.live
    frames, _ = await asyncio.to_thread(play, reader)
    assert [int(frame[0, 0, 0]) for frame in frames] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (np.zeros((2, 2, 3), np.float32), r"needed uint8 \(height, width, 3\), got float32"),
        (np.zeros((2, 2), np.uint8), r"got uint8 \(2, 2\)"),
        (np.zeros((2, 2, 4), np.uint8), r"got uint8 \(2, 2, 4\)"),
        (np.zeros((0, 2, 3), np.uint8), r"got uint8 \(0, 2, 3\)"),
        ([[1]], "needed a NumPy array, got list"),
        (None, "needed a NumPy array, got NoneType"),
        (np.zeros((3, 2, 3), np.uint8), r"needed shape \(2, 2, 3\), as the first, got \(3, 2, 3\)"),
    ],
)
async def test_a_bad_array_is_named(item: Any, told: str) -> None:
    good = np.zeros((2, 2, 3), np.uint8)
    reader = make_reader(_arrays(good, item), MonotonicClock())
    frames, error = await asyncio.to_thread(play, reader)
    assert len(frames) == 1
    assert error is not None
    with pytest.raises(SourceError, match=f"arrays: item 1: .*{told}"):
        raise error


async def test_no_array_at_all_and_a_failing_iterator() -> None:
    with pytest.raises(SourceError, match="ended without an item"):
        await asyncio.to_thread(make_reader(_arrays(), MonotonicClock()).open)

    async def failing() -> AsyncIterator[Image]:
        yield np.zeros((2, 2, 3), np.uint8)
        raise RuntimeError("lens fell off")

    frames, error = await asyncio.to_thread(play, make_reader(failing(), MonotonicClock()))
    assert len(frames) == 1
    assert "arrays: item 1: RuntimeError: lens fell off" in str(error)


@pytest.mark.parametrize("before", [0, 1])
async def test_interrupt_ends_a_wait_for_an_array(before: int) -> None:
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def stuck() -> AsyncIterator[Image]:
        try:
            for _ in range(before):
                yield np.zeros((2, 2, 3), np.uint8)
            waiting.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    reader = make_reader(stuck(), MonotonicClock())
    task = asyncio.create_task(asyncio.to_thread(play, reader))
    async with asyncio.timeout(WATCHDOG):
        await waiting.wait()
        reader.interrupt()
        if before:
            frames, error = await task
            assert (len(frames), error) == (1, None)
        else:
            with pytest.raises(SourceError, match="stopped before the first item"):
                await task
        await ended.wait()


async def test_close_ends_the_iterator() -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncIterator[Image]:
        try:
            while True:
                yield np.zeros((2, 2, 3), np.uint8)
        finally:
            ended.set()

    frames, _ = await asyncio.to_thread(play, make_reader(endless(), MonotonicClock()), 3)
    assert len(frames) == 3
    async with asyncio.timeout(WATCHDOG):
        await ended.wait()
