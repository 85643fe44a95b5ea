"""The first error of a pipeline, and its copies for all tasks that wait for it."""

from __future__ import annotations

import asyncio
import copy
import traceback
from weakref import WeakSet

__all__ = ["Failure"]


class Failure:
    """Keeps the first error. Each task that asks gets a copy, with the original as its cause.

    An error object that several tasks raise would collect the tracebacks of all of them.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._informed: WeakSet[asyncio.Task[object]] = WeakSet()

    def record(self, error: BaseException) -> None:
        """Keep it, if it is the first; of a group, its first plain error."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if self.error is None:
            self.error = error

    def raise_copy(self) -> None:
        """Raise it in this task, if there is one."""
        if self.error is not None:
            self._informed.add(_this_task())
            raise _copied(self.error) from self.error

    def raise_at_exit(self, body: BaseException | None) -> None:
        """At the end of ``async with``: raise it, unless this task had it already.

        An error of the body is what the user sees; ours becomes a note of it.
        """
        if self.error is None or _this_task() in self._informed or _holds(body, self.error):
            return
        if body is None:
            self.raise_copy()
        else:
            body.add_note(f"the pipeline failed: {type(self.error).__name__}: {self.error}")

    def forget_locals(self) -> None:
        """Drop what its frames hold: views in there would keep slots and driver memory."""
        following = self.error
        while following is not None:
            traceback.clear_frames(following.__traceback__)
            following = following.__context__


def _this_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None, "coroutines of a pipeline run in a task"
    return task


def _copied(error: BaseException) -> BaseException:
    try:
        copied = copy.copy(error)
    except Exception:  # its __init__ takes something else than what it keeps in args
        copied = type(error).__new__(type(error), *error.args)
        copied.__dict__.update(error.__dict__)
    if notes := getattr(error, "__notes__", None):
        copied.__notes__ = list(notes)
    return copied


def _holds(error: BaseException | None, original: BaseException) -> bool:
    """True for a copy of the original, or a group with one in it."""
    if isinstance(error, BaseExceptionGroup):
        return any(_holds(inner, original) for inner in error.exceptions)
    return error is not None and error.__cause__ is original
