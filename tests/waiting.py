"""Waiting, outside an event loop, for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["becomes", "until"]


def becomes(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether it came true within ``seconds``, after which something hangs."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until it is true; AssertionError when it hangs."""
    assert becomes(condition, seconds), "it hangs"
