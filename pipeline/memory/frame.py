"""Frame buffers: allocated once for each camera, lent to frames, never grown.

A frame is returned to its pool when its last holder released it and the last
NumPy view of it is gone; until then the buffer is not written again.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.errors import SourceError

if TYPE_CHECKING:
    from pipeline.memory.i420 import Matrix
    from pipeline.memory.i420_to_bgr import BgrConverter

__all__ = ["Frame", "FrameFormat", "FramePool", "Image", "check_size"]

Image = npt.NDArray[np.uint8]
_NO_PIXELS: Image = np.empty((0, 0, 3), np.uint8)


class FrameFormat(NamedTuple):
    """Format of the frames of a source.

    ``fps`` and ``frames`` are None where the source does not know them. ``pixels`` says how
    a frame lies in its buffer: ``bgr`` is uint8 (height, width, 3); ``i420`` is uint8
    (height * 3 / 2, width), the rows of Y and then U and V at half the width and height,
    which are even. ``matrix`` and ``full_range`` say which colors I420 stands for.
    """

    width: int
    height: int
    fps: float | None = None
    frames: int | None = None
    pixels: Literal["bgr", "i420"] = "bgr"
    matrix: Matrix = "601"
    full_range: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a frame's buffer."""
        if self.pixels == "i420":
            return (self.height * 3 // 2, self.width)
        return (self.height, self.width, 3)

    def fits(self, other: FrameFormat) -> bool:
        """True if frames of the other format have the same buffer layout."""
        return self[:2] == other[:2] and self[4:] == other[4:]


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Refuse an image by the size that it announces; SourceError naming the setting."""
    if width < 1 or height < 1:
        raise SourceError(f"the image declares a size of {width}x{height}")
    if width * height > max_pixels:
        raise SourceError(
            f"the image declares a size of {width}x{height}, more than max_pixels "
            f"({max_pixels}) allows"
        )


class Frame:
    """One captured frame in a buffer of a pool.

    ``sequence`` counts the frames of its camera from 0; ``captured_ns`` is the stamp at
    which the frame was taken (or was due), ``retrieved_ns`` when it was decoded.
    ``pixels`` is the buffer as the source filled it.
    """

    __slots__ = (
        "__weakref__",
        "_holders",
        "_image",
        "_pool",
        "_views",
        "camera",
        "captured_ns",
        "grabbed_ns",
        "index",
        "pixels",
        "retrieved_ns",
        "sequence",
    )

    def __init__(self, pool: FramePool, index: int, pixels: Image) -> None:
        self._pool = pool
        self._image: Image | None = None
        self._holders = 0
        self._views = 0
        self.index = index
        self.pixels = pixels
        self.camera = ""
        self.sequence = -1
        self.captured_ns = 0
        self.grabbed_ns = 0
        self.retrieved_ns = 0

    @property
    def format(self) -> FrameFormat:
        """Format of the source when it was captured."""
        return self._pool.format

    @property
    def image(self) -> Image:
        """Uint8 BGR (height, width, 3), for as long as the frame is held.

        Where the buffer holds planes they are converted when this is first asked for.
        """
        return self.pixels if self.format.pixels == "bgr" else self._pool._image_of(self)

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
        """Read-only array over ``image``; the buffer is not reused while it lives."""
        with self._pool.lock:
            self._views += 1
        try:
            # The memoryview between stops NumPy from naming the pool's own array as the base of
            # slices, so the array made here outlives every slice of it and can be watched.
            array = np.asarray(self.image.data)
            array.flags.writeable = False
            weakref.finalize(array, self._drop_view).atexit = False
        except BaseException:
            self._drop_view()
            raise
        return array

    def _drop_view(self) -> None:
        with self._pool.lock:
            self._views -= 1
        self._pool._settle(self)

    def _idle(self) -> bool:
        return self._holders == 0 and self._views == 0


class FramePool:
    """A fixed set of frame buffers, all of one shape.

    ``count`` buffers of the format's shape are allocated here and nowhere else. Where they are
    not BGR, as many images are allocated besides as are asked for at a time, and used again.
    ``on_free`` is called, from whichever thread freed it, each time a buffer comes back.
    After ``close`` no frame is lent any more.
    """

    def __init__(
        self, frame_format: FrameFormat, count: int, on_free: Callable[[], Any] | None = None
    ) -> None:
        # Reentrant: a view may be collected, and so dropped, while the lock is held.
        self.lock = threading.RLock()
        self.format = frame_format
        self.on_free = on_free
        shape = frame_format.shape
        self._frames = [Frame(self, i, np.zeros(shape, np.uint8)) for i in range(count)]
        self._converting = threading.Lock()
        self._converter: BgrConverter | None = None
        self._images: list[Image] = []  # those that no frame has
        self._image_bytes = 0
        self._free = list(self._frames)
        self._out = [False] * count
        self._closed = False

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def free(self) -> int:
        """Number of buffers that nobody holds."""
        return len(self._free)

    @property
    def all_viewed(self) -> bool:
        """True if nothing but views holds any buffer."""
        with self.lock:
            return all(frame._views > 0 and frame._holders == 0 for frame in self._frames)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers and images together."""
        return sum(frame.pixels.nbytes for frame in self._frames) + self._image_bytes

    def try_acquire(self) -> Frame | None:
        """Lend a buffer with one holder, or None when all are out."""
        with self.lock:
            if self._closed or not self._free:
                return None
            frame = self._free.pop()
            self._out[frame.index] = True
            frame._holders = 1
            return frame

    def close(self) -> None:
        """Give the memory back, that of frames which are out once they are back."""
        with self.lock:
            self._closed = True
            self._images.clear()
            for frame in self._free:
                frame.pixels = _NO_PIXELS

    def _settle(self, frame: Frame) -> None:
        with self.lock:
            if not (self._out[frame.index] and frame._idle()):
                return
            self._out[frame.index] = False
            if self._closed:
                frame.pixels, frame._image = _NO_PIXELS, None
            elif frame._image is not None:
                self._images.append(frame._image)
                frame._image = None
            self._free.append(frame)
        if self.on_free is not None:
            self.on_free()

    def _image_of(self, frame: Frame) -> Image:
        """The BGR of a frame of planes, made once for as long as the frame is out."""
        if frame._image is not None:
            return frame._image
        # One lock for the converter and so that two who ask for one frame get one image.
        # Not the pool's: nobody who frees a buffer waits for a conversion.
        with self._converting:
            if frame._image is None:
                image = self._spare_image()
                self._bgr_converter().convert(frame.pixels, image)
                frame._image = image
            return frame._image

    def _spare_image(self) -> Image:
        with self.lock:
            if self._images:
                return self._images.pop()
            self._image_bytes += self.format.width * self.format.height * 3
        return np.empty((self.format.height, self.format.width, 3), np.uint8)

    def _bgr_converter(self) -> BgrConverter:
        if self._converter is None:
            from pipeline.memory.i420_to_bgr import BgrConverter

            form = self.format
            self._converter = BgrConverter(form.width, form.matrix, form.full_range)
        return self._converter


FrameFormat.__module__ = "pipeline"  # so that pickles survive moves
