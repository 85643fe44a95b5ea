"""Location of an engine's shared object: from the settings, or found by the system."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

from pipeline.errors import EngineNotInstalledError

__all__ = ["first_loadable", "named_library"]


def named_library(setting: str) -> str:
    """The library that ``library`` names: a path must exist, a plain name is the loader's.

    EngineNotInstalledError when the path does not.
    """
    if os.sep in setting and not Path(setting).is_file():
        raise EngineNotInstalledError(f"{setting}: no such library", ("library",))
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
