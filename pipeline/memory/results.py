"""Results: detections, raw outputs and the result that carries them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.errors import ClosedError
from pipeline.memory.frame import Image

__all__ = [
    "Detection",
    "Detections",
    "FrameMapping",
    "Holders",
    "RawOutput",
    "Result",
    "Stamps",
    "end_loan",
    "lend",
    "share",
]


class Detection(NamedTuple):
    """One detection: ``box`` (x1, y1, x2, y2) and ``landmarks`` (K, 2) in frame pixels."""

    box: npt.NDArray[np.float32]
    score: float
    label: str
    landmarks: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """Detections of one frame as read-only arrays, best score first.

    ``boxes`` float32 (N, 4) x1, y1, x2, y2 in frame pixels; ``scores`` float32 (N,) in 0..1;
    ``labels`` int32 (N,) into ``names``; ``landmarks`` float32 (N, K, 2) in frame pixels,
    K = 0 where the model has none.
    """

    boxes: npt.NDArray[np.float32]
    scores: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int32]
    landmarks: npt.NDArray[np.float32]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for array in (self.boxes, self.scores, self.labels, self.landmarks):
            array.flags.writeable = False

    @classmethod
    def empty(cls, names: tuple[str, ...] = (), landmarks: int = 0) -> Detections:
        """No detections, with ``landmarks`` points each."""
        return cls(
            np.empty((0, 4), np.float32),
            np.empty(0, np.float32),
            np.empty(0, np.int32),
            np.empty((0, landmarks, 2), np.float32),
            names,
        )

    def __reduce__(self) -> tuple[type[Detections], tuple[Any, ...]]:
        return Detections, (self.boxes, self.scores, self.labels, self.landmarks, self.names)

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[Detection]:
        for i, score in enumerate(self.scores.tolist()):
            yield Detection(self.boxes[i], score, self.label(i), self.landmarks[i])

    def label(self, index: int) -> str:
        """Name of the label of detection ``index``, or its number where it has no name."""
        number = int(self.labels[index])
        return self.names[number] if 0 <= number < len(self.names) else str(number)


class RawOutput(NamedTuple):
    """One output tensor as the model gave it; ``array`` is read-only driver memory or a copy."""

    name: str
    array: npt.NDArray[Any]


class FrameMapping(NamedTuple):
    """Place of a frame in the model's input: model = frame * scale + offset, in pixels."""

    scale_x: float
    scale_y: float
    offset_x: float
    offset_y: float
    frame_width: int
    frame_height: int

    def to_frame(self, points: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Map float32 points (..., 2) from model input pixels to frame pixels, clipped to it."""
        scale = np.array((self.scale_x, self.scale_y), np.float32)
        offset = np.array((self.offset_x, self.offset_y), np.float32)
        limit = np.array((self.frame_width, self.frame_height), np.float32)
        mapped: npt.NDArray[np.float32] = np.clip((points - offset) / scale, np.float32(0), limit)
        return mapped


class Stamps(NamedTuple):
    """Start and end of each stage of one frame, integer nanoseconds of one clock."""

    captured: int
    grabbed: int
    retrieved: int
    preprocess_start: int
    preprocess_end: int
    infer_start: int
    infer_end: int
    postprocess_start: int
    postprocess_end: int

    @property
    def latency_ns(self) -> int:
        """Age of the frame when its result was ready."""
        return self.postprocess_end - self.captured


class Holders:
    """Counts the holders of what a result borrows; the last ``release`` gives it back.

    ``holders``: how many there are at first.
    """

    __slots__ = ("_count", "_give_back")
    _lock = threading.RLock()  # of all: held for a moment only, and one for each would cost more

    def __init__(self, give_back: Callable[[], None], holders: int = 1) -> None:
        self._count = holders
        self._give_back = give_back

    @property
    def held(self) -> bool:
        """True while anybody holds it."""
        return self._count > 0

    def retain(self) -> None:
        """Add a holder."""
        with self._lock:
            if self._count == 0:
                raise ClosedError("result: already released")
            self._count += 1

    def release(self) -> None:
        """Give up one hold; more calls than holders are a ClosedError."""
        if not self._drop():
            raise ClosedError("result: released more often than held")

    def end(self) -> None:
        """Give up one hold, unless all are given up already."""
        self._drop()

    def _drop(self) -> bool:
        with self._lock:
            if self._count == 0:
                return False
            self._count -= 1
            last = self._count == 0
        if last:
            give_back, self._give_back = self._give_back, _nothing
            give_back()
        return True


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """Result of one frame.

    ``detections`` is always the result's own. ``image`` and ``outputs`` are borrowed:
    in ``async for`` they hold until the next turn of the loop, and are refused afterwards;
    ``copy()`` keeps everything. ``mapping`` has the frame's place in the model's input:
    ``mapping.to_frame(points)`` turns points (..., 2) of raw outputs into frame pixels.
    """

    camera: str
    sequence: int
    stamps: Stamps
    detections: Detections
    mapping: FrameMapping
    _image: Callable[[], Image]
    _outputs: Callable[[], Sequence[RawOutput]]
    _lease: Holders | None = None

    @property
    def captured_ns(self) -> int:
        """Capture stamp, nanoseconds of the pipeline's clock."""
        return self.stamps.captured

    @property
    def frame_size(self) -> tuple[int, int]:
        """Width and height of the frame, pixels."""
        return self.mapping.frame_width, self.mapping.frame_height

    @property
    def image(self) -> Image:
        """The frame, read-only uint8 BGR (height, width, 3).

        Where the source gives YUV planes, they are converted when this is first asked for.
        """
        self._check()
        return self._image()

    @property
    def outputs(self) -> Sequence[RawOutput]:
        """The model's outputs, read-only; empty unless postprocess keeps them (``raw``)."""
        self._check()
        return self._outputs()

    def copy(self) -> Result:
        """A result that owns its image and outputs and stays valid without limit."""
        outputs = tuple(RawOutput(name, array.copy()) for name, array in self.outputs)
        return _owned(*self._own(), self.image.copy(), outputs)

    def retain(self) -> None:
        """Keep the borrowed parts until a matching ``release``."""
        if self._lease is not None:
            self._lease.retain()

    def release(self) -> None:
        """Give the borrowed parts back, once for the loop's own hold and each ``retain``."""
        if self._lease is not None:
            self._lease.release()

    def __reduce__(self) -> tuple[Callable[..., Result], tuple[Any, ...]]:
        return _owned, (*self._own(), self.image, tuple(self.outputs))

    def _own(self) -> tuple[str, int, Stamps, Detections, FrameMapping]:
        return self.camera, self.sequence, self.stamps, self.detections, self.mapping

    def _check(self) -> None:
        if self._lease is not None and not self._lease.held:
            raise ClosedError(
                f"result {self.sequence} of camera {self.camera!r}: its frame and outputs were "
                "given back; use result.copy() to keep them"
            )


def _owned(
    camera: str,
    sequence: int,
    stamps: Stamps,
    detections: Detections,
    mapping: FrameMapping,
    image: Image,
    outputs: tuple[RawOutput, ...],
) -> Result:
    """A result of arrays that nobody else writes."""
    for array in (image, *(output.array for output in outputs)):
        array.flags.writeable = False
    return Result(camera, sequence, stamps, detections, mapping, lambda: image, lambda: outputs)


def lend(
    result: Result,
    give_back: Callable[[], None],
    image: Callable[[], Image],
    outputs: Callable[[], Sequence[RawOutput]],
) -> Result:
    """Make a result for one receiver, with a hold of its own that ends in ``give_back``."""
    return Result(
        result.camera,
        result.sequence,
        result.stamps,
        result.detections,
        result.mapping,
        image,
        outputs,
        Holders(give_back),
    )


def share(result: Result) -> Result:
    """Make a result for one receiver, whose hold nobody else can release."""
    result.retain()
    return lend(result, result.release, result._image, result._outputs)


def end_loan(result: Result) -> None:
    """Take back what a receiver was lent, unless it released that itself."""
    if result._lease is not None:
        result._lease.end()


for _public in (Detection, Detections, FrameMapping, RawOutput, Result, Stamps):
    _public.__module__ = "pipeline"  # so that pickles survive moves
