"""From the cameras' frames into slots, and the slots to the engine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.channel import Channel, ChannelClosed
from pipeline.clock import Clock
from pipeline.contracts import FrameMapping, Preprocess
from pipeline.errors import ClosedError, PipelineError
from pipeline.frame import Frame, FrameFormat
from pipeline.ring import Ring, RunReport, Slot
from pipeline.selector import Selector
from pipeline.stages.base import Stage
from pipeline.stages.engine import EngineRoom
from pipeline.stats import CameraRecorder

__all__ = ["Dispatch", "Feed", "InFlight", "Placed"]


@dataclass
class Feed:
    """One camera as the engine sees it: its preprocessing, its limit of age and its counters."""

    name: str
    preprocess: Preprocess
    recorder: CameraRecorder
    max_age_ns: int | None = None
    format: FrameFormat | None = None  # of the frames that preprocess is fitted to


class Placed(NamedTuple):
    """A frame in a slot, and where it is in there."""

    frame: Frame
    feed: Feed
    mapping: FrameMapping
    started_ns: int

    def drop(self, cause: str) -> None:
        """It becomes no result."""
        self.feed.recorder.dropped[cause] += 1
        self.frame.release()


class InFlight(NamedTuple):
    """A slot that is with the engine, and the frames in it: one, or a batch."""

    placed: list[Placed]
    batch: int
    ring: Ring
    slot: Slot
    run: asyncio.Future[RunReport]
    submitted_ns: int

    def drop(self, cause: str) -> None:
        """Its frames become no results."""
        self.run.cancel()
        self.slot.release()
        for placed in self.placed:
            placed.drop(cause)


class Dispatch(Stage):
    """Waits for a slot first and for a frame then, so that the frame is the newest there is.

    Which camera is next is the selector's choice. Where the model takes a batch, a slot waits
    up to ``batch_wait_s`` after its first frame for the others. With ``newest`` no more runs
    are submitted than there are contexts: a frame that queued for one would age meanwhile.
    """

    def __init__(
        self,
        feeds: dict[str, Feed],
        frames: Selector[Frame],
        engine: EngineRoom,
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
        self.newest = False
        self._runs: set[asyncio.Future[RunReport]] = set()
        self._turn: asyncio.Future[None] | None = None
        self._padding: dict[int, Feed] = {}  # whose padding is at each place of the ring's slots
        self._padded_ring: Ring | None = None

    async def run(self) -> None:
        """Fill and submit slots until no frame is left."""
        try:
            while True:
                await self._my_turn()
                ring, slot = await self._engine.acquire()
                placed: list[Placed] = []
                try:
                    await self._fill(ring, slot, placed)
                    submitted, run = self._clock.now(), slot.submit()
                    self._runs.add(run)
                    run.add_done_callback(self._ended)
                    await self._in_flight.put(
                        InFlight(placed, self._batch, ring, slot, run, submitted)
                    )
                except ClosedError as error:
                    # The engine was replaced meanwhile; what is in a slot of the old one is lost.
                    self._lose(slot, placed, "failed")
                    if self._engine.ring is ring:
                        raise error
                except BaseException as error:
                    cause = "failed" if isinstance(error, PipelineError) else "cancelled"
                    self._lose(slot, placed, cause)
                    raise
        except ChannelClosed:
            pass
        finally:
            self._in_flight.close()

    async def _my_turn(self) -> None:
        """Wait until a context is free, where the newest frame counts."""
        while self.newest and len(self._runs) >= self._engine.executor.contexts:
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn

    def _ended(self, run: asyncio.Future[RunReport]) -> None:
        self._runs.discard(run)
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def _lose(self, slot: Slot, placed: list[Placed], cause: str) -> None:
        slot.release()
        for one in placed:
            one.drop(cause)

    @property
    def _batch(self) -> int:
        return self._engine.executor.inputs[0].shape[0]

    async def _fill(self, ring: Ring, slot: Slot, placed: list[Placed]) -> None:
        await self._place(ring, slot, placed, await self._next())
        due = asyncio.get_running_loop().time() + self._batch_wait_s
        while len(placed) < self._batch:
            try:
                async with asyncio.timeout_at(due):
                    frame = await self._next()
            except (TimeoutError, ChannelClosed):
                return  # a part of a batch is better than waiting
            await self._place(ring, slot, placed, frame)

    async def _place(self, ring: Ring, slot: Slot, placed: list[Placed], frame: Frame) -> None:
        """Write the frame to the next place in the slot."""
        feed, spec = self._feeds[frame.camera], self._engine.executor.inputs[0]
        place = slot.index * self._batch + len(placed)
        started = self._clock.now()
        try:
            if frame.format is not feed.format:
                feed.preprocess.open(frame.format, spec)
                feed.format = frame.format
            self._claim(ring, place, feed)
            target = slot.inputs[0]
            if self._batch > 1:
                target = target[len(placed) : len(placed) + 1]
            await self._call(feed.preprocess.process, frame.pixels, target, place)
        except BaseException:
            frame.release()
            feed.recorder.dropped["cancelled"] += 1
            raise
        placed.append(Placed(frame, feed, feed.preprocess.mapping, started))

    def _claim(self, ring: Ring, place: int, feed: Feed) -> None:
        """Another camera's frame, or another ring's memory, was here: padding must be redone."""
        if ring is not self._padded_ring:
            self._padded_ring = ring
            self._padding.clear()
        if self._padding.get(place) is not feed:
            feed.preprocess.forget(place)
            self._padding[place] = feed

    async def _next(self) -> Frame:
        """The next frame that is not too old."""
        while True:
            frame = await self._frames.get()
            feed = self._feeds[frame.camera]
            age = self._clock.now() - frame.captured_ns
            if feed.max_age_ns is None or age <= feed.max_age_ns:
                return frame
            feed.recorder.dropped["stale"] += 1
            frame.release()
