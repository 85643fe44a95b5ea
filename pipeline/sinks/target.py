"""Files of sinks: making their folder, naming why that failed, noticing that they are gone."""

from __future__ import annotations

import os
import time

from pipeline.errors import SinkError

__all__ = ["Removal", "make_parent", "reason_of"]

_LOOK_SECONDS = 1.0


def reason_of(error: OSError) -> str:
    """Reason of an OSError in the system's words, without number and path."""
    return error.strerror or type(error).__name__


def make_parent(kind: str, path: str) -> None:
    """Make the folders above ``path``; SinkError when that is not possible."""
    if os.path.isdir(path):
        raise SinkError(f"{kind}: {path}: is a folder, needed a file")
    parent = os.path.dirname(os.path.abspath(path))
    try:
        os.makedirs(parent, exist_ok=True)
    except FileExistsError:
        raise SinkError(f"{kind}: {path}: {parent} is not a folder") from None
    except OSError as error:
        raise SinkError(f"{kind}: {path}: cannot make its folder: {reason_of(error)}") from error


class Removal:
    """Notices, about once a second, that an open file has no name any more.

    Writing to it raises nothing, but nobody would find it. One that was renamed is still there.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._next = 0.0

    def seen(self) -> bool:
        """True once the file, or the folder with it, was removed."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _LOOK_SECONDS
        return os.fstat(self._descriptor).st_nlink == 0
