"""Frame buffers: allocated once for each camera, lent to frames, never grown.

A frame is returned to its pool when its last holder released it and the last
NumPy view of it is gone; until then the buffer is not written again.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Frame", "FrameFormat", "FramePool", "Image"]

Image = npt.NDArray[np.uint8]


class FrameFormat(NamedTuple):
    """What a source delivers.

    Frames are uint8 BGR of shape (height, width, 3). ``fps`` and ``frames`` are
    None where the source does not know them.
    """

    width: int
    height: int
    fps: float | None = None
    frames: int | None = None


class Frame:
    """One captured picture in a buffer of a pool.

    ``sequence`` counts the frames of its camera from 0; ``captured_ns`` is the stamp at
    which the picture was taken (or was due), ``retrieved_ns`` when it was decoded.
    """

    __slots__ = (
        "__weakref__",
        "_holders",
        "_pool",
        "_views",
        "camera",
        "captured_ns",
        "grabbed_ns",
        "image",
        "index",
        "retrieved_ns",
        "sequence",
    )

    def __init__(self, pool: FramePool, index: int, image: Image) -> None:
        self._pool = pool
        self._holders = 0
        self._views = 0
        self.index = index
        self.image = image
        self.camera = ""
        self.sequence = -1
        self.captured_ns = 0
        self.grabbed_ns = 0
        self.retrieved_ns = 0

    @property
    def format(self) -> FrameFormat:
        """Format of the source when it was captured."""
        return self._pool.format

    def retain(self) -> None:
        """Add a holder; each holder calls ``release`` once."""
        with self._pool.lock:
            self._holders += 1

    def release(self) -> None:
        """Give up one hold; the last one returns the buffer once no view is left."""
        with self._pool.lock:
            if self._holders <= 0:
                raise RuntimeError(f"frame buffer {self.index}: released more often than held")
            self._holders -= 1
        self._pool._settle(self)

    def view(self) -> Image:
        """Read-only array over the buffer; the buffer is not reused while it lives."""
        # The memoryview between stops NumPy from naming the pool's own array as the base of
        # slices, so the array made here outlives every slice of it and can be watched.
        array = np.asarray(self.image.data)
        array.flags.writeable = False
        with self._pool.lock:
            self._views += 1
        weakref.finalize(array, self._drop_view).atexit = False
        return array

    def _drop_view(self) -> None:
        with self._pool.lock:
            self._views -= 1
        self._pool._settle(self)

    def _idle(self) -> bool:
        return self._holders == 0 and self._views == 0


class FramePool:
    """A fixed set of frame buffers, all of one shape.

    ``count`` buffers of uint8 (height, width, 3) are allocated here and nowhere else.
    ``on_free`` is called, from whichever thread freed it, each time a buffer comes back.
    """

    def __init__(
        self, frame_format: FrameFormat, count: int, on_free: Callable[[], Any] | None = None
    ) -> None:
        # Reentrant: a view may be collected, and so dropped, while the lock is held.
        self.lock = threading.RLock()
        self.format = frame_format
        self.on_free = on_free
        shape = (frame_format.height, frame_format.width, 3)
        self._frames = [Frame(self, i, np.zeros(shape, np.uint8)) for i in range(count)]
        self._free = list(self._frames)
        self._out = [False] * count

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def free(self) -> int:
        """Number of buffers that nobody holds."""
        return len(self._free)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers together."""
        return sum(frame.image.nbytes for frame in self._frames)

    def try_acquire(self) -> Frame | None:
        """Lend a buffer with one holder, or None when all are out."""
        with self.lock:
            if not self._free:
                return None
            frame = self._free.pop()
            self._out[frame.index] = True
            frame._holders = 1
            return frame

    def _settle(self, frame: Frame) -> None:
        with self.lock:
            if not (self._out[frame.index] and frame._idle()):
                return
            self._out[frame.index] = False
            self._free.append(frame)
        if self.on_free is not None:
            self.on_free()
