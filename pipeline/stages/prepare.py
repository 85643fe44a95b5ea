"""From a camera's frames into slots, and the slots to the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pipeline.channel import Channel, ChannelClosed
from pipeline.clock import Clock
from pipeline.contracts import FrameMapping, Preprocess
from pipeline.errors import ModelError
from pipeline.frame import Frame, FrameFormat
from pipeline.ring import Ring, RunReport, Slot
from pipeline.stages.base import Stage
from pipeline.stats import Recorder

if TYPE_CHECKING:
    from pipeline._native import TensorSpec

__all__ = ["InFlight", "Prepare"]


class InFlight(NamedTuple):
    """A frame whose slot is with the engine."""

    frame: Frame
    slot: Slot
    run: asyncio.Future[RunReport]
    mapping: FrameMapping
    started_ns: int
    submitted_ns: int


class Prepare(Stage):
    """Waits for a slot first and for a frame then, so that the frame is the newest there is."""

    def __init__(
        self,
        preprocess: Preprocess,
        frames: Channel[Frame],
        ring: Ring,
        in_flight: Channel[InFlight],
        clock: Clock,
        recorder: Recorder,
    ) -> None:
        super().__init__("preprocess")
        self._recorder = recorder
        self._preprocess = preprocess
        self._frames = frames
        self._ring = ring
        self._in_flight = in_flight
        self._clock = clock

    def fit(self, frame_format: FrameFormat, inputs: Sequence[TensorSpec]) -> None:
        """Fix the placement of frames in the model's one input."""
        if len(inputs) != 1:
            names = ", ".join(repr(spec.name) for spec in inputs)
            raise ModelError(
                f"model.path: the model has {len(inputs)} inputs ({names}), but a pipeline feeds "
                "one picture; use Executor for such a model"
            )
        self._preprocess.open(frame_format, inputs[0])

    async def run(self) -> None:
        """Fill and submit slots until no frame is left."""
        try:
            while True:
                slot = await self._ring.acquire()
                try:
                    frame = await self._frames.get()
                except BaseException:
                    slot.release()
                    raise
                await self._submit(slot, frame)
        except ChannelClosed:
            pass
        finally:
            self._in_flight.close()

    async def _submit(self, slot: Slot, frame: Frame) -> None:
        try:
            started = self._clock.now()
            await self._call(self._preprocess.process, frame.image, slot.inputs[0], slot.index)
            submitted = self._clock.now()
            run = slot.submit()
            await self._in_flight.put(
                InFlight(frame, slot, run, self._preprocess.mapping, started, submitted)
            )
        except BaseException:
            slot.release()
            frame.release()
            self._recorder.dropped["cancelled"] += 1
            raise
