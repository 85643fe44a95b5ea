"""From the cameras' frames into slots, and the slots to the engine."""

from __future__ import annotations

import asyncio

from pipeline.clock import Clock
from pipeline.errors import PipelineError
from pipeline.flow.channel import Channel, ChannelClosed
from pipeline.flow.engine_supervisor import EngineSupervisor
from pipeline.flow.fair_share import FairShare
from pipeline.flow.slot_filler import BatchItem, CameraFeed, InFlight, SlotFiller
from pipeline.flow.stage import Stage
from pipeline.memory.frame import Frame
from pipeline.memory.ring import Ring, RunReport, Slot

__all__ = ["SubmitStage"]


class SubmitStage(Stage):
    """Waits for a slot first and for a frame then, so that the frame is the newest there is.

    Which camera is next is the selector's choice. Where the model takes a batch, a slot waits
    up to ``batch_wait_s`` after its first frame for the others. The run's own thread resizes the
    frame where it can; else the stage's thread writes it and starts the run. The loop hears of it
    when the run has ended. With ``newest`` no more runs are begun than there are contexts: a frame
    that queued for one would age meanwhile.
    """

    def __init__(
        self,
        feeds: dict[str, CameraFeed],
        frames: FairShare[Frame],
        engine: EngineSupervisor,
        in_flight: Channel[InFlight],
        clock: Clock,
        batch_wait_s: float = 0.005,
    ) -> None:
        super().__init__("preprocess")
        self._feeds = feeds
        self._frames = frames
        self._engine = engine
        self._in_flight = in_flight
        self._clock = clock
        self._batch_wait_s = batch_wait_s
        self._filler = SlotFiller(engine, clock)
        self.newest = False
        self._runs: set[asyncio.Future[RunReport]] = set()
        self._turn: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Fill and submit slots until no frame is left."""
        try:
            while True:
                await self._my_turn()
                ring, slot = await self._engine.acquire()
                try:
                    frame = await self._next()
                except BaseException:
                    slot.release()
                    raise
                await self._submit(self._begun(ring, slot), frame)
        except ChannelClosed:
            pass
        finally:
            self._in_flight.close()

    async def _my_turn(self) -> None:
        """Wait until a context is free, where the newest frame counts."""
        while self.newest and len(self._runs) >= self._engine.contexts:
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn

    def _begun(self, ring: Ring, slot: Slot) -> InFlight:
        run = slot.prepare()
        if self.newest:
            self._runs.add(run.future)
            run.future.add_done_callback(self._ended)
        return InFlight(self._engine.batch, ring, slot, run)

    def _ended(self, run: asyncio.Future[RunReport]) -> None:
        self._runs.discard(run)
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    async def _submit(self, item: InFlight, frame: Frame) -> None:
        """Have the frame written, those that follow it soon in a batch, and the run started."""
        try:
            started = self._add(item, frame)
            if item.batch > 1:
                await self._fill(item)
            await self._in_flight.put(item)
        except BaseException as error:
            item.drop("failed" if isinstance(error, PipelineError) else "cancelled")
            raise
        # Where age counts, the next frame is not chosen before there is somebody to write it.
        aged = item.parts[0].feed.max_age_ns is not None
        if not started and (aged or (self.newest and self._engine.contexts > 1)):
            await self._call(_reached)

    async def _fill(self, item: InFlight) -> None:
        due = asyncio.get_running_loop().time() + self._batch_wait_s
        while len(item.parts) < item.batch:
            try:
                async with asyncio.timeout_at(due):
                    frame = await self._next()
            except (TimeoutError, ChannelClosed):
                self._send(item, None, True)
                return  # a part of a batch is better than waiting
            self._add(item, frame)

    def _add(self, item: InFlight, frame: Frame) -> bool:
        """Have the frame written to the next place in the slot; the last one starts the run.

        True if the run's own thread does it, so that the stage's has nothing to do.
        """
        index, feed = len(item.parts), self._feeds[frame.camera]
        item.parts.append(BatchItem(frame, feed))
        # With a single busy context, do not spend its thread on resizing.
        idle = self.newest or self._engine.contexts > 1
        if item.batch == 1 and idle and self._filler.start_resizing(item):
            return True
        frame.retain()
        self._send(item, index, index + 1 == item.batch)
        return False

    def _send(self, item: InFlight, index: int | None, last: bool) -> None:
        assert self._worker is not None, "the stage is not open"
        self._worker.send(item.run.fail, self._filler.work, item, index, last)

    async def _next(self) -> Frame:
        """The next frame that is not too old."""
        while True:
            frame = await self._frames.get()
            feed = self._feeds[frame.camera]
            if feed.max_age_ns is None or self._clock.now() - frame.captured_ns <= feed.max_age_ns:
                return frame
            feed.recorder.dropped["stale"] += 1
            frame.release()


def _reached() -> None:
    """Barrier: completes after all earlier calls."""
