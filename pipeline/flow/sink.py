"""From results to one sink."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Literal

from pipeline.contracts import Sink, StreamInfo
from pipeline.errors import ReaderLeftError, SinkError
from pipeline.flow.backoff import Backoff
from pipeline.flow.channel import Channel, ChannelClosed
from pipeline.flow.events import State
from pipeline.flow.stage import Stage
from pipeline.memory.results import Result, end_loan

__all__ = ["SinkStage"]

_log = logging.getLogger(__name__)

_LAST_SECONDS = 5.0
_REMINDER_SECONDS = 60.0


class SinkStage(Stage):
    """Writes results to a sink, on the sink's own thread, until no result is left.

    ``on_error`` says what a failure does: stop everything, retry the same result, or disable
    this sink alone; ``report_state(state, reason)`` reports the latter two. ``lost``
    is called for a result that was taken and may not have been written. ``failing`` is the last
    error while it is tried again; if it still is at the end, what waited is not written.
    """

    kind = SinkError

    def __init__(
        self,
        name: str,
        sink: Sink,
        results: Channel[Result],
        lost: Callable[[], None] = lambda: None,
        *,
        on_error: Literal["stop", "retry", "disable"] = "stop",
        backoff: Backoff | None = None,
        report_state: Callable[[State, str], None] = lambda state, reason: None,
    ) -> None:
        super().__init__(f"sink-{name}")
        self._sink_name = name
        self._lost = lost
        self._sink = sink
        self._results = results
        self._on_error = on_error
        self._backoff = backoff or Backoff(max_s=5.0)
        self._report_state = report_state
        self._stream: StreamInfo | None = None
        self.failing: SinkError | None = None
        self._under_way: Result | None = None
        self._writing: asyncio.Future[Any] | None = None

    def describe(self, stream: StreamInfo) -> None:
        """Set the camera and format that ``open`` will get; call it before."""
        self._stream = stream

    async def run(self) -> None:
        """Write until the results end. SinkError stops it where the policy is stop."""
        try:
            await self._attempt(self._sink.begin)
            while True:
                result = await self._results.get()
                self._under_way = result
                try:
                    await self._attempt(self._sink.write, result)
                except asyncio.CancelledError:
                    raise  # it may be written all the same: see ``close``
                except BaseException:
                    self._written(False)
                    raise
                self._written(True)
        except ChannelClosed:
            pass
        except SinkError as error:
            if error is self.failing:
                return  # reported once it is known how much is lost
            if self._on_error != "disable":
                raise
            self._report_state("failed", f"{error}; the pipeline goes on without this sink")
            self._results.clear()  # those that come from now on find it closed

    def interrupt(self) -> None:
        """Let a write that waits for a reader fail."""
        self._sink.interrupt()

    async def close(self, timeout: float) -> bool:
        """As for every stage; a write that was under way ends before, or counts as lost."""
        self.interrupt()
        try:
            closed = await super().close(timeout)
        except SinkError:
            self._end_of_write()
            raise
        self._end_of_write()
        return closed

    def _end_of_write(self) -> None:
        call = self._writing
        whole = call is not None and call.done() and call.exception() is None
        if whole:
            self.failing = None
        self._written(whole)

    def _written(self, whole: bool) -> None:
        """The result under way was written, or may not have been; its loan ends."""
        result, self._under_way = self._under_way, None
        if result is not None:
            if not whole:
                self._lost()
            end_loan(result)

    async def _attempt(self, function: Callable[..., None], *args: Result) -> None:
        loop = asyncio.get_running_loop()
        attempt = 0
        began = said = loop.time()
        ended: float | None = None  # since when there are no more results to come
        while True:
            try:
                # Cancelling does not stop the thread, so how this ends is looked at all the same.
                self._writing = self._call(function, *args)
                await self._blaming(asyncio.shield(self._writing), self.kind)
            except SinkError as error:
                if self._on_error != "retry" or isinstance(error, ReaderLeftError):
                    raise
                self.failing = error
                attempt += 1
                if attempt == 1:
                    self._report_state("failed", f"{error}; the sink tries again")
                elif loop.time() - said >= _REMINDER_SECONDS:
                    said = loop.time()
                    self._remind(error, said - began)
                # At the end nothing else is waited for, so there is an end to this, too.
                if not self._results.closed:
                    ended = None
                elif ended is None:
                    ended = loop.time()
                elif loop.time() - ended > _LAST_SECONDS:
                    raise
                pause = self._backoff.pause(attempt)
                await asyncio.sleep(pause if ended is None else min(pause, 0.5))
                continue
            if attempt:
                self.failing = None
                self._report_state("reopened", "")
            return

    def _remind(self, error: SinkError, seconds: float) -> None:
        text = "%s: still failing after %.0f s: %s"
        _log.error(text, self._sink_name, seconds, error, extra={"source": self._sink_name})

    def _open(self) -> None:
        assert self._stream is not None, "describe comes first"
        self._sink.open(self._stream)

    def _close(self) -> None:
        self._sink.close()
