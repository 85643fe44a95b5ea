"""The source alone: frames are read into buffers and dropped."""

from __future__ import annotations

import functools
import threading
import time
from typing import NamedTuple

from pipeline.bench.figures import StageFigures
from pipeline.bench.meter import Conditions, on_thread, repeat
from pipeline.contracts import Reader
from pipeline.errors import Abandoned, FormatChangedError, SourceError
from pipeline.memory.frame import FrameFormat, FramePool, Image

__all__ = ["Decoded", "decode_alone"]

# Frames that are kept for the other stages: some, as none is like the other, but not much memory.
_KEPT = 16
_KEPT_BYTES = 64 << 20


class Decoded(NamedTuple):
    """Figures, the source's format, and some of its frames."""

    figures: StageFigures
    format: FrameFormat
    frames: list[Image]


async def decode_alone(
    reader: Reader,
    conditions: Conditions,
    *,
    own_pace: bool = False,
    timeout: float | None = None,
) -> Decoded:
    """Read for a while; where the source has its own pace, waiting for it does not count.

    SourceError when it fails, or when that is not done within ``timeout`` s.
    """
    stop = threading.Event()

    def give_up() -> None:
        stop.set()
        reader.interrupt()

    conditions.report("decode")
    job = functools.partial(_measure, reader, conditions.seconds, own_pace, stop)
    try:
        return await on_thread(
            Abandoned(SourceError, "capture"), job, give_up, conditions.abandoned, timeout
        )
    except TimeoutError:
        raise SourceError(f"no frames to measure came within {timeout:g} s") from None


def _measure(reader: Reader, seconds: float, own_pace: bool, stop: threading.Event) -> Decoded:
    found = reader.open()
    try:
        taker = _Taker(reader, found, own_pace)
        kept = _keep(taker, time.monotonic() + seconds, stop)
        figures = repeat(taker.take, seconds, stop)
    finally:
        reader.close()
    if figures is None or not kept:
        raise SourceError("it ended before there was a frame to measure")
    return Decoded(figures, found, kept)


def _keep(taker: _Taker, due: float, stop: threading.Event) -> list[Image]:
    """Copies of the first frames, read before the time counts."""
    frames: list[Image] = []
    most = _KEPT
    while len(frames) < most and not stop.is_set() and (not frames or time.monotonic() < due):
        if taker.take() is None:
            break
        frame = taker.last.pixels
        if not frames or frame.shape == frames[0].shape:
            frames.append(frame.copy())
        most = min(_KEPT, max(2, _KEPT_BYTES // frame.nbytes))
    return frames


class _Taker:
    """Takes one frame after another into the buffers of a pool."""

    def __init__(self, reader: Reader, found: FrameFormat, own_pace: bool) -> None:
        self._reader = reader
        self._own_pace = own_pace
        self._use(found)

    def _use(self, found: FrameFormat) -> None:
        self._pool = FramePool(found, 2)
        frame = self._pool.try_acquire()
        assert frame is not None
        frame.release()
        self.last = frame

    def take(self) -> int | None:
        """Nanoseconds for the next frame, which is in ``last``; None at the end."""
        while True:
            began = time.monotonic_ns()
            captured = self._reader.grab()
            if captured is None:
                return None
            frame = self._pool.try_acquire()
            assert frame is not None
            try:
                self._reader.retrieve(frame.pixels)
            except FormatChangedError as change:
                self._use(change.format)
                continue
            finally:
                frame.release()
            self.last = frame
            return time.monotonic_ns() - (captured if self._own_pace else began)
