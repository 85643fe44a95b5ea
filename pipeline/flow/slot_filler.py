"""A slot on its way to the engine, and the thread that writes its frames and starts its run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from pipeline.clock import Clock
from pipeline.contracts import FrameMapping, Preprocess
from pipeline.errors import SourceError
from pipeline.flow.engine_supervisor import EngineSupervisor
from pipeline.flow.source_faults import SourceFaults
from pipeline.flow.stats import CameraRecorder
from pipeline.memory.frame import Frame, FrameFormat
from pipeline.memory.ring import PreparedRun, Ring, Slot

__all__ = ["BatchItem", "CameraFeed", "InFlight", "SlotFiller"]


@dataclass
class CameraFeed:
    """One camera as the engine sees it: its preprocessing, its limit of age and its counters.

    ``fail`` is called on the loop with the number of a frame that preprocessing failed for.
    """

    name: str
    preprocess: Preprocess
    recorder: CameraRecorder
    max_age_ns: int | None = None
    fail: Callable[[SourceError, int], None] = lambda error, sequence: None
    format: FrameFormat | None = None  # of the frames that preprocess is fitted to
    faults: SourceFaults = field(init=False)

    def __post_init__(self) -> None:
        self.faults = SourceFaults(self.name)


@dataclass(slots=True, eq=False)
class BatchItem:
    """A frame in a slot. How it lies there and since when is known once it was written.

    ``failure``: why it could not be written.
    """

    frame: Frame
    feed: CameraFeed
    mapping: FrameMapping | None = None
    started_ns: int = 0
    failure: SourceError | None = None

    def drop(self, cause: str) -> None:
        """Release the frame, which becomes no result."""
        self.feed.recorder.dropped[cause] += 1
        self.frame.release()


@dataclass(slots=True, eq=False)
class InFlight:
    """A slot that is being filled or with the engine, and the frames in it: one, or a batch.

    ``submitted_ns`` is 0 until its run was started. ``lost``: its frames become no results, and
    what is still to be done for it is left out.
    """

    batch: int
    ring: Ring
    slot: Slot
    run: PreparedRun
    parts: list[BatchItem] = field(default_factory=list)
    submitted_ns: int = 0
    lost: bool = False

    def drop(self, cause: str) -> None:
        """Release all frames of the slot, which become no results."""
        self.lost = True
        self.run.future.cancel()
        self.slot.release()
        for part in self.parts:
            part.drop(cause)


class SlotFiller:
    """Fills slots on the thread of the submit stage, in the order of their acquisition."""

    def __init__(self, engine: EngineSupervisor, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._padding: dict[
            int, CameraFeed
        ] = {}  # whose padding is at each place of the ring's slots
        self._padded_ring: Ring | None = None
        self._claiming = threading.Lock()
        self._loop = asyncio.get_running_loop()

    def work(self, item: InFlight, index: int | None, last: bool) -> None:
        """Write frame ``index`` of the slot, if one is given, and start the run after the last.

        The caller holds the frame once more, which ends here.
        """
        part = None if index is None else item.parts[index]
        try:
            if item.lost:
                return
            if part is not None and index is not None:
                try:
                    self._fill(item, part, index)
                except SourceError as error:
                    self._failed(part, error)
                    fail, sequence = part.feed.fail, part.frame.sequence
                    self._loop.call_soon_threadsafe(fail, error, sequence)
            if last:
                if (failure := _failure_of_all(item)) is not None:
                    raise failure
                item.submitted_ns = self._clock.now()
                item.run.start()
        except BaseException:
            item.lost = True
            raise
        finally:
            if part is not None:
                part.frame.release()

    def start_resizing(self, item: InFlight) -> bool:
        """Start the run of the slot's one frame, which its own thread resizes. On the loop.

        False, and nothing was done, where preprocessing needs its thread.
        """
        part = item.parts[0]
        feed, frame = part.feed, part.frame
        if frame.format is not feed.format:
            return False  # fitting preprocess to it may take long
        try:
            self._claim(item.ring, item.slot.index, feed)
            step = feed.faults.call("preprocess", feed.preprocess.resize_step, item.slot.index)
        except SourceError as error:
            self._failed(part, error)
            feed.fail(error, frame.sequence)
            item.run.fail(error)
            return True
        if step is None:
            return False
        part.mapping = feed.preprocess.mapping
        part.started_ns = item.submitted_ns = self._clock.now()
        item.run.start_resizing(step, frame.pixels)
        return True

    @staticmethod
    def _failed(part: BatchItem, error: SourceError) -> None:
        part.failure = error
        part.feed.format = None  # preprocess must be fitted again

    def _fill(self, item: InFlight, part: BatchItem, index: int) -> None:
        frame, feed = part.frame, part.feed
        input_index = item.slot.index * item.batch + index
        part.started_ns = self._clock.now()
        if frame.format is not feed.format:
            feed.faults.call("preprocess", feed.preprocess.open, frame.format, self._engine.input)
            feed.format = frame.format
        self._claim(item.ring, input_index, feed)
        process = feed.preprocess.process
        feed.faults.call("preprocess", process, frame.pixels, _target(item, index), input_index)
        part.mapping = feed.preprocess.mapping

    def _claim(self, ring: Ring, input_index: int, feed: CameraFeed) -> None:
        """Another camera's frame, or another ring's memory, was here: padding must be redone."""
        with self._claiming:
            if ring is not self._padded_ring:
                self._padded_ring = ring
                self._padding.clear()
            if self._padding.get(input_index) is not feed:
                feed.faults.call("preprocess", feed.preprocess.forget, input_index)
                self._padding[input_index] = feed


def _target(item: InFlight, index: int) -> npt.NDArray[Any]:
    whole = item.slot.inputs[0]
    return whole if item.batch == 1 else whole[index : index + 1]


def _failure_of_all(item: InFlight) -> SourceError | None:
    """The reason if no frame of the slot could be written."""
    failure = None
    for part in item.parts:
        if part.failure is None:
            return None
        failure = part.failure
    return failure
