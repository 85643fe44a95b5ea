"""From a source into frame buffers and the channel of its camera, reopened when lost."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.clock import Clock
from pipeline.contracts import Reader
from pipeline.errors import FormatChangedError, PipelineError, SourceError
from pipeline.flow.backoff import Backoff
from pipeline.flow.channel import Channel, ChannelClosed
from pipeline.flow.events import State
from pipeline.flow.reader_thread import PendingRead, ReaderThread, ReadResult
from pipeline.flow.source_faults import SourceFaults
from pipeline.flow.stats import KEPT, CameraRecorder
from pipeline.memory.frame import Frame, FrameFormat, FramePool, check_size

__all__ = ["CaptureSettings", "CaptureStage"]

_log = logging.getLogger(__name__)

# Readers that hang in a read cannot be freed; more of them than this are not made.
_MOST_STUCK = 3
_CLOSE_SECONDS = 1.0
# Reads that are begun at a time where all frames count: the reader need not wait for the loop.
_AHEAD = 2
_KEPT_SECONDS = 1.0
# Buffers of that many formats are kept, for a source that goes to and fro between two.
_MOST_POOLS = 2


@dataclass(frozen=True)
class CaptureSettings:
    """Settings for reading one camera.

    ``paced``: frames come by the clock. ``supervised``: it has deadlines
    (``open_s``, ``read_s``), is reopened when it is lost or its frame did not change for
    ``stale_s``. ``wait_at_start``: it need not be there when the pipeline starts.
    """

    camera: str
    paced: bool
    buffers: int
    supervised: bool = False
    wait_at_start: bool = False
    open_s: float = 10.0
    read_s: float = 5.0
    stale_s: float = 0.0
    max_fps: float | None = None
    max_frames: int | None = None
    max_pixels: int = 64_000_000
    backoff: Backoff = field(default_factory=Backoff)


class CaptureStage:
    """Reads frames until the source ends for good, ``stop`` or ``max_frames``.

    ``report_state(state, reason)`` is called when the source connects, is live, stale, lost or
    ended, ``found_end`` when one that is supervised turns out to be a file, which ends once.
    """

    kind = SourceError

    def __init__(
        self,
        make_reader: Callable[[], Reader],
        channel: Channel[Frame],
        settings: CaptureSettings,
        clock: Clock,
        recorder: CameraRecorder,
        report_state: Callable[[State, str], None],
        found_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = f"capture-{settings.camera}"
        self.error: PipelineError | None = None
        self._make_reader = make_reader
        self._channel = channel
        self._settings = settings
        self._clock = clock
        self._recorder = recorder
        self._report_state = report_state
        self._faults = SourceFaults(settings.camera)
        self._fault: SourceError | None = None
        self._connected_at = 0  # the number of the connection's first frame
        self._found_end = found_end
        self._supervised = settings.supervised
        self._connection: ReaderThread | None = None
        self._stuck: list[ReaderThread] = []
        self._format: FrameFormat | None = None
        self._pool: FramePool | None = None
        self._pools: list[FramePool] = []  # the one that is used is the last
        self._reads: deque[PendingRead] = deque()
        self._turn = 0
        self._freed: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._stopping = asyncio.Event()
        self._given_up = False
        self._sequence = 0
        self._short_ns = 0  # since when there was no buffer
        self._damaged = 0  # of this connection, as far as counted
        self._sample = b""
        self._sample_ns = 0
        self._next_due_ns = 0

    @property
    def pool(self) -> FramePool | None:
        """The camera's frame buffers, once it was open."""
        return self._pool

    async def open(self) -> FrameFormat | None:
        """Open the source; None where it may come later."""
        if self._settings.supervised and self._settings.wait_at_start:
            return None
        try:
            await self._connect()
        except PipelineError:
            raise
        except Exception as error:
            raise self._faults.unexpected("open", error) from error
        return self._format

    def stop(self) -> None:
        """End after the current frame."""
        self._stopping.set()
        if self._connection is not None:
            self._connection.interrupt()
        self._wake()

    def give_up(self) -> None:
        """Do not wait for a read that is stuck any longer."""
        self._given_up = True
        if self._connection is not None:
            self._connection.give_up()

    def fail(self, error: SourceError, sequence: int) -> None:
        """Count the camera as lost: a later part cannot take its frame ``sequence``."""
        if self._connection is not None and sequence >= self._connected_at:
            self._fault = error
            self._connection.fail(error)

    async def run(self) -> None:
        """Fill the channel, then close it; cancelling closes it at once.

        A source that breaks for good is kept in ``error`` instead of being raised: what came
        before it still becomes results.
        """
        attempt = 0
        try:
            while not self._stopping.is_set():
                before = self._sequence
                reason = await self._until_lost()
                if reason is None:
                    break
                attempt = 1 if self._sequence > before else attempt + 1
                if not await self._recover(attempt, reason):
                    break
        except ChannelClosed:
            pass
        finally:
            self._channel.close()
            self._report_state("ended", str(self.error) if self.error is not None else "")

    async def _until_lost(self) -> str | None:
        """Take frames until the source is lost, for the reason returned; None: this is the end."""
        try:
            if self._connection is None:
                await self._connect()
            if await self._pump() or not self._supervised:
                return None
            return "the stream ended"
        except ChannelClosed:
            raise
        except Exception as error:
            if self._stopping.is_set():
                return None
            if not isinstance(error, PipelineError):
                error = self._faults.unexpected("capture", error)
            if not self._supervised:
                self.error = error
                return None
            return str(error)

    async def close(self, timeout: float) -> bool:
        """Close the reader; False when a thread of it is stuck and was abandoned."""
        closed = True
        if self._connection is not None:
            # A read that was given up has had its time already.
            closed = await self._connection.close(0.5 if self._given_up else timeout)
        return closed and not self._still_stuck()

    async def _connect(self) -> None:
        settings = self._settings
        self._report_state("connecting", "")
        self._fault, self._connected_at = None, self._sequence
        reader = self._faults.call("open", self._make_reader)
        self._connection = connection = ReaderThread(
            self.name, reader, self._clock, self._faults, sampled=settings.stale_s > 0
        )
        self._damaged = 0
        found = await connection.open(settings.open_s if settings.supervised else None)
        if self._supervised and not connection.live:
            self._supervised = False
            self._found_end()
        if self._format is not None:
            self._recorder.reconnects += 1
        self._use(found)
        self._sample = b""
        self._report_state("live", f"{found.width}x{found.height}")

    def _use(self, found: FrameFormat) -> bool:
        """Use buffers for this format; True if they had to be allocated.

        Frames of an older format keep their own buffers.
        """
        check_size(found.width, found.height, self._settings.max_pixels)
        known = [pool for pool in self._pools if found.fits(pool.format)]
        pool = known[0] if known else FramePool(found, self._settings.buffers, self._on_free)
        others = [other for other in self._pools if other is not pool]
        self._pools = [*others[1 - _MOST_POOLS :], pool]
        self._pool, self._format = pool, found
        return not known

    async def _recover(self, attempt: int, reason: str) -> bool:
        """Drop the connection and wait for the next attempt; False when there is none."""
        backoff = self._settings.backoff
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                if not await connection.close(_CLOSE_SECONDS):
                    self._stuck.append(connection)
            except PipelineError:
                pass  # it was lost anyway
        if backoff.attempts is not None and attempt > backoff.attempts:
            self.error = SourceError(f"{reason} (given up after {backoff.attempts} attempts)")
            return False
        self._report_state("lost", reason)
        pause = backoff.pause(attempt)
        while True:
            try:
                await asyncio.wait_for(self._stopping.wait(), pause)
                return False
            except TimeoutError:
                if len(self._still_stuck()) < _MOST_STUCK:
                    return True
                pause = backoff.max_s

    def _still_stuck(self) -> list[ReaderThread]:
        self._stuck = [connection for connection in self._stuck if not connection.ended]
        return self._stuck

    async def _pump(self) -> bool:
        """Take frames; True when that is all, False when the source ended by itself."""
        try:
            while not self._stopping.is_set() and self._sequence != self._settings.max_frames:
                await self._begin_reads()
                if self._stopping.is_set():
                    break
                if self._fault is not None:
                    raise self._fault
                if not await self._take(self._reads.popleft()):
                    return self._stopping.is_set()
            return True
        finally:
            self._count_damage()
            self._forget_reads()

    def _count_damage(self) -> None:
        assert self._connection is not None
        before, self._damaged = self._damaged, self._connection.damaged
        self._recorder.damaged += self._damaged - before

    async def _begin_reads(self) -> None:
        """Have the next frame read, and one more ahead where none will be too old."""
        assert self._connection is not None
        assert self._pool is not None
        most = _AHEAD if self._channel.overflow == "block" else 1
        if self._settings.max_frames is not None:
            most = min(most, self._settings.max_frames - self._sequence)
        while len(self._reads) < most:
            frame = self._pool.try_acquire() if self._reads else await self._buffer()
            if frame is None and (self._reads or self._stopping.is_set()):
                return
            self._reads.append(self._connection.begin(frame, self._due, self._turn))

    def _forget_reads(self) -> None:
        """Ignore the reads in flight; their frames do not count."""
        self._turn += 1
        while self._reads:
            read = self._reads.popleft()
            read.forget()
            if read.frame is not None:
                read.frame.release()

    async def _buffer(self) -> Frame | None:
        """A buffer for the next frame; None: it must be dropped, for all are held."""
        assert self._pool is not None
        while (frame := self._pool.try_acquire()) is None and self._channel.overflow == "block":
            if self._stopping.is_set():
                return None
            self._freed = self._loop.create_future()
            # One may have come back from another thread before the future was there.
            if self._pool.free == 0:
                watch = self._loop.call_later(_KEPT_SECONDS, self._check_kept)
                try:
                    await self._freed
                finally:
                    watch.cancel()
        if frame is not None:
            self._recorder.kept, self._short_ns = False, 0
        elif self._short_ns == 0:
            self._short_ns = self._clock.now()
        elif self._clock.now() - self._short_ns > _KEPT_SECONDS * 1e9:
            self._check_kept()
        return frame

    def _check_kept(self) -> None:
        """Say once that the program keeps all buffers, where it does."""
        if self._recorder.kept or self._pool is None or not self._pool.all_viewed:
            return
        self._recorder.kept = True
        camera = self._settings.camera
        _log.warning("%s: %s", camera, KEPT, extra={"source": camera})

    async def _take(self, read: PendingRead) -> bool:
        """One frame from the reader into the channel; False at its end."""
        assert self._connection is not None
        frame = read.frame
        try:
            timeout = self._settings.read_s if self._supervised else None
            taken = await self._connection.taken(read, timeout)
            if taken is None:
                return False
            self._count_damage()
            sequence, self._sequence = self._sequence, self._sequence + 1
            self._recorder.captured(taken.began)
            if frame is None or not taken.decoded:
                self._recorder.dropped["no_buffer" if frame is None else "rate"] += 1
                return True
            self._check_fresh(taken)
            await self._put(frame, sequence, taken)
        except FormatChangedError as change:
            if read.again:  # it does not fit what it asked for
                raise SourceError(str(change)) from change
            await self._take_again(change.format)
        finally:
            if frame is not None:
                frame.release()
        return True

    async def _take_again(self, found: FrameFormat) -> None:
        """Have the frame that brought a new format read into a buffer of it."""
        assert self._connection is not None
        self._forget_reads()  # those are into buffers of the old format
        if self._use(found):
            self._report_state("live", f"now {found.width}x{found.height}")
        frame = await self._buffer()
        if not self._stopping.is_set():
            self._reads.append(self._connection.begin(frame, self._due, self._turn, again=True))
        elif frame is not None:
            frame.release()

    async def _put(self, frame: Frame, sequence: int, taken: ReadResult) -> None:
        frame.camera, frame.sequence = self._settings.camera, sequence
        frame.captured_ns, frame.grabbed_ns = taken.captured, taken.grabbed
        frame.retrieved_ns = taken.retrieved
        # Waiting for the next frame of a camera is not work.
        spent = taken.retrieved - (taken.captured if self._settings.paced else taken.began)
        self._recorder.stages["capture"].record(spent)
        frame.retain()
        try:
            await self._channel.put(frame)
        except BaseException:
            frame.release()
            self._recorder.dropped["cancelled"] += 1
            raise

    def _due(self, captured_ns: int) -> bool:
        """True if ``max_fps`` lets this frame be taken. On the reader's thread."""
        if self._settings.max_fps is None:
            return True
        period = round(1e9 / self._settings.max_fps)
        # A tenth early is in time: cameras are not that regular.
        if captured_ns < self._next_due_ns - period // 10:
            return False
        self._next_due_ns = max(self._next_due_ns, captured_ns - period) + period
        return True

    def _check_fresh(self, taken: ReadResult) -> None:
        """SourceError once the frame was the very same for too long."""
        if not (taken.sample and self._supervised):
            return
        if taken.sample != self._sample:
            self._sample, self._sample_ns = taken.sample, taken.captured
        elif taken.captured - self._sample_ns > self._settings.stale_s * 1e9:
            self._recorder.dropped["frozen"] += 1
            self._report_state("stale", f"the same frame for {self._settings.stale_s:g} s")
            raise SourceError(f"the same frame for {self._settings.stale_s:g} s")

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
