"""Ctrl-C, SIGTERM and SIGHUP, counted from the first moment, so that none is lost or counted twice.

This module is loaded before any other of the command line, so it imports next to nothing.
"""

from __future__ import annotations

import signal

TYPE_CHECKING = False  # typing's own takes longer to import than all the rest
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any

__all__ = ["Interrupted", "StopRequests"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A request to stop at once.

    Python ends the process by SIGINT after any plain KeyboardInterrupt that left an ``exec`` of
    text, which imports run, even if it was caught.
    """


class StopRequests:
    """Counts the requests to stop while it is entered; use it on the main thread.

    ``bound``: how many may come before a loop is attached; the next one raises Interrupted.
    """

    def __init__(self, bound: int = 1) -> None:
        self.count = 0
        self.bound = bound
        self._before: dict[signal.Signals, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_stop: Callable[[int], None] | None = None

    def __enter__(self) -> StopRequests:
        for number in _SIGNALS:
            before = signal.getsignal(number)
            if number is signal.SIGHUP and before is signal.SIG_IGN:
                continue  # under nohup
            self._before[number] = before
            signal.signal(number, self._heard)
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
        """Call ``on_stop`` on the loop with the count, now if there was a request already.

        The handlers stay as they are: a loop that learns of a signal, too, would count it again.
        """
        self._loop, self._on_stop = loop, on_stop
        if self.count:
            on_stop(self.count)

    def detach(self) -> None:
        """Only count again."""
        self._loop = self._on_stop = None

    def ignore(self) -> None:
        """Ignore all further signals: the process ends, and its exit code is to stay."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def refuse_any(self) -> None:
        """Raise Interrupted at the next request, or now if there was one."""
        self.bound = 0
        if self.count:
            raise Interrupted

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self._loop is not None and self._on_stop is not None:
            self._loop.call_soon_threadsafe(self._on_stop, self.count)
        elif self.count > self.bound:
            raise Interrupted
