"""What a process has: threads, descriptors and memory, to be compared before and after."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

__all__ = ["resident", "resources"]


def resources() -> Counter[str]:
    """Threads by name, and what the open descriptors are of, without numbers of their own."""
    threads = (_read(Path("/proc/self/task") / task / "comm") for task in _list("task"))
    files = (_link(Path("/proc/self/fd") / number) for number in _list("fd"))
    found = Counter([*(f"thread {name}" for name in threads), *files])
    del found[""], found["thread "]
    return found


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _list(folder: str) -> list[str]:
    return os.listdir(f"/proc/self/{folder}")


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # it has just ended
        return ""


def _link(path: Path) -> str:
    try:
        return re.sub(r"\d+", "", os.readlink(path))
    except OSError:
        return ""
