"""Synthetic frames: what is drawn, at what rate, and what their URI may ask for."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import ConfigError
from pipeline.sources import make_reader
from pipeline.sources.synthetic import SyntheticReader, synthetic_frame, synthetic_settings
from tests.unit.playing import LeapingClock, buffer_of, play, settings


def test_synthetic_frames_can_be_recomputed() -> None:
    reader = make_reader(settings("synthetic:", width=50, height=30, frames=300), MonotonicClock())
    assert not reader.live
    frames, error = play(reader)
    assert error is None
    assert len(frames) == 300
    for number in (0, 1, 255, 256, 299):
        np.testing.assert_array_equal(frames[number], synthetic_frame(number, 50, 30))
    assert (frames[0] != frames[1]).any()


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (3, 2), (700, 5)])
def test_synthetic_frames_of_odd_sizes(size: tuple[int, int]) -> None:
    for number in (0, 7, 1000):
        assert synthetic_frame(number, *size).shape == (size[1], size[0], 3)


def test_synthetic_is_paced_by_its_rate() -> None:
    reader = SyntheticReader(settings("synthetic:?width=64&height=48&fps=50"), LeapingClock())
    assert reader.live
    assert reader.open()[:4] == (64, 48, 50, None)
    assert [reader.grab() for _ in range(4)] == [0, 20_000_000, 40_000_000, 60_000_000]
    buffer = np.zeros((48, 64, 3), np.uint8)
    reader.retrieve(buffer)
    np.testing.assert_array_equal(buffer, synthetic_frame(3, 64, 48))
    reader.interrupt()
    assert reader.grab() is None
    reader.close()


def test_synthetic_draws_without_frame_sized_memory() -> None:
    import tracemalloc

    reader = SyntheticReader(settings("synthetic:", width=1280, height=720), MonotonicClock())
    buffer = buffer_of(reader.open())
    tracemalloc.start()
    try:
        for _ in range(5):
            reader.grab()
            reader.retrieve(buffer)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64_000


@pytest.mark.parametrize("query", ["", "//", "?", "?width=8&height=6&fps=2.5&frames=3"])
def test_synthetic_queries(query: str) -> None:
    merged = synthetic_settings(settings(f"synthetic:{query}"))
    expected = (8, 6, 2.5, 3) if "width" in query else (None,) * 4
    assert (merged.width, merged.height, merged.fps, merged.frames) == expected


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("?wdith=3", "knows width, height, fps, frames.*not 'wdith'"),
        ("?width=0", "width=0: .*greater than or equal to 1"),
        ("?width=wide", "width=wide: "),
        ("?width=8&width=9", "width is given twice"),
        ("?height=9", "height is given twice"),
        ("640x480", "not '640x480'"),
    ],
)
def test_bad_synthetic_queries(query: str, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"^uri: .*{told}"):
        make_reader(settings(f"synthetic:{query}", height=5), MonotonicClock())
