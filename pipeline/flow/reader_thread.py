"""One reader on a thread of its own, abandoned as a whole when it does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from pipeline.clock import Clock
from pipeline.contracts import Reader
from pipeline.errors import SourceError
from pipeline.flow.deadline import Deadline
from pipeline.flow.source_faults import SourceFaults
from pipeline.memory.frame import Frame, FrameFormat
from pipeline.worker import Worker

__all__ = ["PendingRead", "ReadResult", "ReaderThread"]

T = TypeVar("T")


class ReadResult(NamedTuple):
    """Times (ns) at which a frame was begun, captured, grabbed and decoded.

    ``decoded`` false: it was skipped. ``sample``: a few of its pixels, if asked for.
    """

    began: int
    captured: int
    grabbed: int
    retrieved: int
    decoded: bool
    sample: bytes


class PendingRead:
    """A frame that is being read or will be; ``frame`` None: it is only skipped.

    ``again``: it was grabbed before and did not fit the buffer it was for. The reader's thread
    has a hold of its own on the frame, until it lets go of it.
    """

    __slots__ = ("_hold", "again", "frame", "taken")

    taken: asyncio.Future[ReadResult | None]

    def __init__(self, frame: Frame | None, *, again: bool = False) -> None:
        self.frame = frame
        self.again = again
        self._hold = [frame]  # taken out by whoever is first: the thread or ``forget``
        if frame is not None:
            frame.retain()

    def forget(self) -> None:
        """Give the frame up; if reading has not begun, it never does."""
        self.taken.add_done_callback(_look_at)
        if self.claim() and self.frame is not None:
            self.frame.release()

    def claim(self) -> bool:
        """True if the caller holds the frame from now on."""
        try:
            self._hold.pop()
        except IndexError:
            return False
        return True


class ReaderThread:
    """From opening a reader to closing it; reopened, it is another connection."""

    def __init__(
        self,
        name: str,
        reader: Reader,
        clock: Clock,
        faults: SourceFaults,
        *,
        sampled: bool = False,
    ) -> None:
        self._reader = reader
        self._faults = faults
        self._clock = clock
        self._sampled = sampled
        self._worker = Worker(name)
        self._opened = False
        self._closed: asyncio.Future[None] | None = None
        self._waiting: asyncio.Future[Any] | None = None
        self._broken_turn = -1
        self._began = self._captured = self._grabbed = 0  # of the newest frame

    async def open(self, timeout: float | None) -> FrameFormat:
        """Open the reader. SourceError when it fails or takes longer than ``timeout`` s."""
        return await self._within(self._worker.submit(self._open), timeout, "it did not open")

    def begin(
        self,
        frame: Frame | None,
        wanted: Callable[[int], bool],
        turn: int = 0,
        *,
        again: bool = False,
    ) -> PendingRead:
        """Have the next frame decoded into ``frame`` if its capture stamp is wanted.

        Several may be begun: they are read in order. Once one of a ``turn`` has failed or was
        the end, those begun after it in the same turn are not read. With ``again`` it is the
        frame that was grabbed last and turned out to be of another format.
        """
        read = PendingRead(frame, again=again)
        read.taken = self._worker.submit(self._read, read, wanted, turn)
        return read

    async def taken(self, read: PendingRead, timeout: float | None) -> ReadResult | None:
        """Result of the oldest read in flight; None at the end.

        SourceError when the reader fails or nothing comes within ``timeout`` s.
        """
        return await self._within(read.taken, timeout, "no frame came")

    def give_up(self) -> None:
        """Stop waiting for the reader at once; SourceError where it is awaited."""
        self.fail(SourceError("given up"))

    def fail(self, error: SourceError) -> None:
        """Raise this where the reader is awaited."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)

    def interrupt(self) -> None:
        """Make a call that waits end soon, if the reader can."""
        with contextlib.suppress(SourceError):  # it is logged, and the deadline is left
            self._faults.call("interrupt", self._reader.interrupt)

    async def close(self, timeout: float) -> bool:
        """Close the reader and join its thread; False when it is stuck and was abandoned.

        What the reader raises when closed is raised here.
        """
        if self._closed is None:
            self.interrupt()
            self._closed = self._worker.submit(self._close)
            self._closed.add_done_callback(_look_at)
        if not await self._worker.close(timeout):
            return False
        self._closed.result()
        return True

    @property
    def live(self) -> bool:
        """True if the reader, now that it is open, has no end."""
        return self._reader.live

    @property
    def damaged(self) -> int:
        """Frames so far that the reader's decoder calls damaged."""
        return int(getattr(self._reader, "damaged", 0))

    @property
    def ended(self) -> bool:
        """True once its thread has ended."""
        return self._closed is not None and self._closed.done()

    async def _within(self, future: asyncio.Future[T], timeout: float | None, what: str) -> T:
        if future.done():
            return future.result()
        # What is awaited can fail or be cancelled; the call itself goes on regardless.
        loop = asyncio.get_running_loop()
        self._waiting = outer = loop.create_future()
        future.add_done_callback(functools.partial(_copy, outer))
        watch = None
        if timeout is not None:
            reason = f"{what} within {timeout:g} s"
            watch = Deadline(timeout, functools.partial(self._fail, outer, reason))
        try:
            result: T = await outer
            return result
        finally:
            self._waiting = None
            if watch is not None:
                watch.cancel()

    @staticmethod
    def _fail(outer: asyncio.Future[Any] | None, reason: str) -> None:
        if outer is not None and not outer.done():
            outer.set_exception(SourceError(reason))

    def _open(self) -> FrameFormat:
        frame_format = self._faults.call("open", self._reader.open)
        self._opened = True
        return frame_format

    def _read(
        self, read: PendingRead, wanted: Callable[[int], bool], turn: int
    ) -> ReadResult | None:
        if not read.claim():
            return None
        taken: ReadResult | None = None
        try:
            if turn != self._broken_turn:
                taken = self._faults.call("read", self._read_now, read, wanted)
            return taken
        finally:
            if taken is None:
                self._broken_turn = turn
            if read.frame is not None:
                read.frame.release()

    def _read_now(self, read: PendingRead, wanted: Callable[[int], bool]) -> ReadResult | None:
        frame = read.frame
        if not read.again:
            began = self._clock.now()
            captured = self._reader.grab()
            if captured is None:
                return None
            self._began, self._captured, self._grabbed = began, captured, self._clock.now()
        sample = b""
        decoded = frame is not None and (read.again or wanted(self._captured))
        if frame is not None and decoded:
            self._reader.retrieve(frame.pixels)
            if self._sampled:
                height, width, *_ = frame.pixels.shape
                sample = frame.pixels[:: height // 16 + 1, :: width // 16 + 1].tobytes()
        now = self._clock.now()
        return ReadResult(self._began, self._captured, self._grabbed, now, decoded, sample)

    def _close(self) -> None:
        if self._opened:
            self._opened = False
            self._faults.call("close", self._reader.close)


def _copy(outer: asyncio.Future[T], future: asyncio.Future[T]) -> None:
    error = None if future.cancelled() else future.exception()  # looked at, even if too late
    if outer.done() or future.cancelled():
        return
    if error is not None:
        outer.set_exception(error)
    else:
        outer.set_result(future.result())


def _look_at(future: asyncio.Future[T]) -> None:
    """Retrieve the exception of an abandoned call, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
