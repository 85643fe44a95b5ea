"""The files that a run reads and writes, compared by identity, not by name."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from pipeline import paths

__all__ = ["Files"]


class Files:
    """Files in use, each with what uses it: hard and symbolic links are the same file.

    Devices and pipes are no files here: what is written there replaces nothing.
    """

    def __init__(self) -> None:
        self._users: dict[object, str] = {}

    def read(self, path: str, user: str) -> None:
        """Note what is read: a file, or a folder with each file directly inside."""
        for each in (path, *_inside(path)):
            if identity := _identity(each):
                self._users.setdefault(identity, user)

    def write(self, path: str, user: str) -> str | None:
        """Note what is written; who uses that file already, or None."""
        identity = _identity(path)
        if identity is None:
            return None
        other = self._users.setdefault(identity, user)
        return other if other != user else None


def _identity(path: str) -> object:
    """Device and inode, one for all names of a file; None for what cannot be overwritten."""
    if "\0" in path or paths.is_url(path):
        return None
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    kept = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) or stat.S_ISBLK(found.st_mode)
    return (found.st_dev, found.st_ino) if kept else None


def _inside(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield entry.path
    except (OSError, ValueError):
        return  # a file, or not there
