"""The terminal of this process: lines scroll above a bottom line that is written over.

Standard output and standard error may be the same terminal, so whoever writes a line there asks
here for what to write.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

__all__ = ["bottom", "columns", "is_screen", "line"]

_ERASE = "\x1b[K"
_bottom = ""


def is_screen(stream: Any) -> bool:
    """True for a terminal that can erase a line."""
    try:
        return bool(stream.isatty()) and os.environ.get("TERM", "dumb") != "dumb"
    except (AttributeError, OSError, ValueError):  # it may be closed
        return False


def columns() -> int:
    """Width of the terminal: ``COLUMNS``, or that of standard error or output."""
    if not os.environ.get("COLUMNS", "").isdecimal():
        for descriptor in (2, 1):
            try:
                return os.get_terminal_size(descriptor).columns or 80
            except OSError:
                continue
    return shutil.get_terminal_size().columns


def line(text: str) -> str:
    """Text that puts a line, or several, above the bottom line."""
    return f"\r{_ERASE}{text}\n{_bottom}"


def bottom(text: str) -> str:
    """Text that replaces the bottom line; an empty one removes it."""
    global _bottom
    _bottom = text[: max(columns() - 1, 1)]
    return f"\r{_bottom}{_ERASE}"
