"""Where an engine's shared object is: as named in the settings, or as the system finds it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

from pipeline.errors import EngineNotInstalledError

__all__ = ["first_loadable", "named_library"]


def named_library(setting: str, place: str = "") -> str:
    """A library that the settings name: a path must exist, a plain name is the loader's.

    EngineNotInstalledError, its message beginning with ``place``, when the path does not.
    """
    if os.sep in setting and not Path(setting).is_file():
        raise EngineNotInstalledError(f"{place}{setting}: no such library")
    return setting


def first_loadable(names: Iterable[str]) -> str | None:
    """The first of these names under which the system's loader finds a library."""
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None
