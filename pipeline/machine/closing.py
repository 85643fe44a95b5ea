"""Waiting for a task or a close that must finish, even if the waiting task is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

__all__ = ["close_in_time", "wait_through"]

T = TypeVar("T")

# How long closing may take in all: under 6 s, and under 2 s after an error or a cancel.
CLOSE_SECONDS = 5.9
HURRIED_SECONDS = 1.9


async def wait_through(task: asyncio.Future[Any]) -> None:
    """Wait until it is done, through every cancel; then raise the first of them.

    The request to cancel is left as it is for whoever made it (``asyncio.timeout``, a task
    group, anyio). The outcome of ``task`` is not looked at.
    """
    cancelled: asyncio.CancelledError | None = None
    with _shielded():
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                cancelled = cancelled or error
    if cancelled is not None:
        try:
            raise cancelled
        finally:
            cancelled = None  # no cycle with its own traceback


def _shielded() -> contextlib.AbstractContextManager[Any]:
    """A cancelled scope of anyio cancels its task again in each turn of the loop; not in here."""
    anyio = sys.modules.get("anyio")
    return contextlib.nullcontext() if anyio is None else anyio.CancelScope(shield=True)


async def close_in_time(close: Callable[[float], Awaitable[T]], hurried: Callable[[], bool]) -> T:
    """Run ``close(seconds)`` to its end, even if this task is cancelled meanwhile.

    Once ``hurried`` is true, which is looked at when this task is cancelled, it is begun again
    with less time. ``close`` may be cancelled and begun again.
    """
    hurry = hurried()
    while True:
        closing = asyncio.ensure_future(close(HURRIED_SECONDS if hurry else CLOSE_SECONDS))
        while not closing.done() and (hurry or not hurried()):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({closing})
        if closing.done() and not closing.cancelled():
            return closing.result()
        # It is cancelled, too, where all tasks are at the end of a loop.
        hurry = True
        closing.cancel()
