"""Ctrl-C and SIGTERM, counted from the first moment, so that none is lost while starting."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

__all__ = ["StopRequests"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequests:
    """Counts the requests to stop while it is entered; use it on the main thread.

    Before an event loop is attached the second one is a KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequests:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._early)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def attach(self, loop: asyncio.AbstractEventLoop, on_stop: Callable[[int], None]) -> None:
        """Call ``on_stop`` on the loop with the count, now if there was a request already."""

        def heard() -> None:
            self.count += 1
            on_stop(self.count)

        for number in _SIGNALS:
            loop.add_signal_handler(number, heard)
        if self.count:
            on_stop(self.count)

    def detach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Only count again."""
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, self._early)

    def _early(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt
