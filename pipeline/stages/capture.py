"""From a source into frame buffers and the channel of its camera."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

from pipeline.channel import Channel, ChannelClosed
from pipeline.clock import Clock
from pipeline.contracts import Reader
from pipeline.errors import SourceError
from pipeline.frame import Frame, FrameFormat, FramePool
from pipeline.stages.base import Stage
from pipeline.stats import Recorder

__all__ = ["Capture", "CaptureSettings"]

_GIVEN_UP_SECONDS = 0.5


@dataclass(frozen=True)
class CaptureSettings:
    """``paced``: frames come by the clock. ``max_frames``: stop after so many."""

    camera: str
    paced: bool
    buffers: int
    max_frames: int | None = None


class Capture(Stage):
    """Reads frames until the source ends, ``stop`` is called or ``max_frames`` were taken."""

    def __init__(
        self,
        reader: Reader,
        channel: Channel[Frame],
        settings: CaptureSettings,
        clock: Clock,
        recorder: Recorder,
    ) -> None:
        super().__init__(f"capture-{settings.camera}")
        self._reader = reader
        self._channel = channel
        self._settings = settings
        self._clock = clock
        self._recorder = recorder
        self._pool: FramePool | None = None
        self._freed: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._stopping = False
        self._given_up = False
        self._reading: asyncio.Future[tuple[int, int, int, int] | None] | None = None
        self.error: SourceError | None = None

    @property
    def pool(self) -> FramePool | None:
        """The camera's frame buffers, once it is open."""
        return self._pool

    async def open(self) -> FrameFormat:
        """Open the source and allocate its frame buffers."""
        frame_format: FrameFormat = await super().open()
        self._pool = FramePool(frame_format, self._settings.buffers, self._on_free)
        return frame_format

    def stop(self) -> None:
        """End after the current frame."""
        self._stopping = True
        self._reader.interrupt()
        self._wake()

    def give_up(self) -> None:
        """Do not wait for a read that is stuck any longer; one that is not goes on."""
        if self._reading is not None and not self._reading.done():
            self._given_up = True
            self._reading.cancel()

    async def close(self, timeout: float) -> bool:
        """As for every stage; a read that was given up has had its time already."""
        return await super().close(min(timeout, _GIVEN_UP_SECONDS) if self._given_up else timeout)

    async def run(self) -> None:
        """Fill the channel, then close it; cancelling closes it at once.

        A source that breaks is kept in ``error`` instead of being raised: what came before
        it still becomes results.
        """
        settings = self._settings
        try:
            sequence = 0
            while not self._stopping and sequence != settings.max_frames:
                frame = await self._buffer()
                if self._stopping or not await self._take(frame, sequence):
                    if frame is not None:
                        frame.release()
                    break
                sequence += 1
        except ChannelClosed:
            pass
        except SourceError as error:
            self.error = error
        finally:
            self._channel.close()

    async def _buffer(self) -> Frame | None:
        """A buffer for the next frame; None: it must be dropped, for all are held."""
        assert self._pool is not None
        while (frame := self._pool.try_acquire()) is None and self._channel.policy == "block":
            if self._stopping:
                return None
            self._freed = self._loop.create_future()
            # One may have come back from another thread before the future was there.
            if self._pool.free == 0:
                await self._freed
        return frame

    async def _take(self, frame: Frame | None, sequence: int) -> bool:
        try:
            times = await self._start_reading(frame)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and self._given_up:
                return False
            if frame is not None:
                frame.release()
            raise
        if times is None:
            return False
        began, captured, grabbed, retrieved = times
        self._recorder.captured(began)
        if frame is None:
            self._recorder.dropped["no_buffer"] += 1
            return True
        frame.camera = self._settings.camera
        frame.sequence = sequence
        frame.captured_ns, frame.grabbed_ns, frame.retrieved_ns = captured, grabbed, retrieved
        # Waiting for the next picture of a camera is not work.
        spent = retrieved - (captured if self._settings.paced else began)
        self._recorder.stages["capture"].record(spent)
        try:
            await self._channel.put(frame)
        except BaseException:
            frame.release()
            self._recorder.dropped["cancelled"] += 1
            raise
        return True

    async def _start_reading(self, frame: Frame | None) -> tuple[int, int, int, int] | None:
        self._reading = self._call(self._read, frame)
        try:
            return await self._reading
        finally:
            self._reading = None

    def _read(self, frame: Frame | None) -> tuple[int, int, int, int] | None:
        """On the thread: the next frame, and when it began, was captured, grabbed, retrieved."""
        began = self._clock.now()
        captured = self._reader.grab()
        if captured is None:
            return None
        grabbed = self._clock.now()
        if frame is not None:
            self._reader.retrieve(frame.image)
        return began, captured, grabbed, self._clock.now()

    def _open(self) -> FrameFormat:
        return self._reader.open()

    def _close(self) -> None:
        self._reader.close()

    def _on_free(self) -> None:
        if self._freed is None:
            return
        if threading.get_ident() == self._loop_thread:
            self._wake()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        freed, self._freed = self._freed, None
        if freed is not None and not freed.done():
            freed.set_result(None)
