"""From results to one sink."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.channel import Channel, ChannelClosed
from pipeline.contracts import Sink, StreamInfo
from pipeline.results import Result
from pipeline.stages.base import Stage

__all__ = ["Deliver"]


class Deliver(Stage):
    """Writes results to a sink, on the sink's own thread, until no result is left.

    ``lost`` is called for a result that was taken and may not have been written.
    """

    def __init__(
        self,
        name: str,
        sink: Sink,
        results: Channel[Result],
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name)
        self._lost = lost
        self._sink = sink
        self._results = results
        self._stream: StreamInfo | None = None

    def describe(self, stream: StreamInfo) -> None:
        """Tell what is coming; before ``open``."""
        self._stream = stream

    async def run(self) -> None:
        """Write until the results end. SinkError stops it."""
        try:
            while True:
                result = await self._results.get()
                try:
                    await self._call(self._sink.write, result)
                except BaseException:
                    self._lost()
                    raise
                finally:
                    result.release()
        except ChannelClosed:
            pass

    def _open(self) -> None:
        assert self._stream is not None, "describe comes first"
        self._sink.open(self._stream)

    def _close(self) -> None:
        self._sink.close()
