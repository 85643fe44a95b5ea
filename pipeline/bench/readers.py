"""Sources for measuring: a file without a pace, any reader at a set rate, frames from memory."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

import numpy as np

from pipeline.clock import Clock
from pipeline.contracts import Reader
from pipeline.errors import SourceError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.sources import SourceSettings, kind_of
from pipeline.sources.synthetic import SCHEME, synthetic_settings

__all__ = ["Paced", "Replay", "as_file", "has_own_pace", "own_fps"]


def has_own_pace(source: SourceSettings) -> bool:
    """True if the source sets the pace of the frames."""
    kind = kind_of(source)
    return source.comes_live if kind == "own" else kind in ("camera", "gstreamer", "pipe", "stream")


def own_fps(source: SourceSettings) -> float | None:
    """Rate of a synthetic source by its settings; other sources report it when opened."""
    return synthetic_settings(source).fps if kind_of(source) == "synthetic" else None


def as_file(source: SourceSettings) -> SourceSettings:
    """The same frames, again and again, as fast as they are taken."""
    changes: dict[str, object] = {"realtime": False, "loop": True}
    if kind_of(source) == "synthetic":
        source = synthetic_settings(source)
        changes |= {"uri": SCHEME, "fps": None}
    return source.model_copy(update=changes)


class _Ticker:
    """Times of a camera that, held up, leaves frames out instead of catching up."""

    def __init__(self, clock: Clock, fps: float) -> None:
        self._clock = clock
        self._period = round(1e9 / fps)
        self._due = 0

    def wait(self, stop: threading.Event) -> int | None:
        """Wait for the next frame and return its time; None once ``stop`` is set."""
        self._due = max(self._due + self._period, self._clock.now())
        return self._due if self._clock.wait_until(self._due, stop) else None


class Paced:
    """Another reader's frames at a set rate, stamped with when each is due; a ``Reader``.

    As with a file that is played, what precedes ``retrieve`` is done before a frame is due.
    """

    live = True

    def __init__(self, reader: Reader, clock: Clock, fps: float) -> None:
        self._reader = reader
        self._fps = fps
        self._ticker = _Ticker(clock, fps)
        self._stop = threading.Event()

    def open(self) -> FrameFormat:
        """Open the other one."""
        return self._reader.open()._replace(fps=self._fps)

    def grab(self) -> int | None:
        """Grab there and wait until it is due."""
        return None if self._reader.grab() is None else self._ticker.wait(self._stop)

    def retrieve(self, buffer: Image) -> None:
        """Decode there."""
        self._reader.retrieve(buffer)

    def interrupt(self) -> None:
        """Make a waiting ``grab`` return None soon."""
        self._stop.set()
        self._reader.interrupt()

    def close(self) -> None:
        """Close the other one."""
        self._reader.close()


class Replay:
    """Frames from memory, again and again, at a rate or as fast as they are taken; a ``Reader``.

    Nothing is decoded, so that a camera faster than any decoder can be played. ``found`` is the
    frames' format; BGR of their own size by default.
    """

    def __init__(
        self,
        frames: Sequence[Image],
        clock: Clock,
        fps: float | None = None,
        found: FrameFormat | None = None,
    ) -> None:
        self.live = fps is not None
        found = found or FrameFormat(frames[0].shape[1], frames[0].shape[0])
        self._format = found._replace(fps=fps, frames=None)
        self._frames = itertools.cycle(frames)
        self._clock = clock
        self._ticker = None if fps is None else _Ticker(clock, fps)
        self._stop = threading.Event()

    def open(self) -> FrameFormat:
        """Nothing to open."""
        return self._format

    def grab(self) -> int | None:
        """Wait until the next one is due, where there is a rate."""
        if self._stop.is_set():
            return None
        return self._clock.now() if self._ticker is None else self._ticker.wait(self._stop)

    def retrieve(self, buffer: Image) -> None:
        """Copy it into ``buffer``."""
        frame = next(self._frames)
        if frame.shape != buffer.shape:
            raise SourceError(f"replay: needed a buffer {frame.shape}, got {buffer.shape}")
        np.copyto(buffer, frame)

    def interrupt(self) -> None:
        """Make a waiting ``grab`` return None soon."""
        self._stop.set()

    def close(self) -> None:
        """Nothing to close."""
