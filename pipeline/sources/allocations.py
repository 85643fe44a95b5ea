"""A bound on what FFmpeg allocates at once, as it trusts lengths that a server announces."""

from __future__ import annotations

import ctypes
import threading

import av

__all__ = ["bound_allocations"]

_lock = threading.Lock()
_bound = 0


def bound_allocations(max_pixels: int) -> None:
    """Let PyAV's FFmpeg refuse more than the largest image takes, 4 bytes a pixel and 16 MiB.

    It holds for the process, so it only grows. An RTSP server that announces a text of 2 GB
    would be given that much memory else.
    """
    global _bound
    wanted = 4 * max_pixels + (16 << 20)
    with _lock:
        if wanted <= _bound:
            return
        # The module is linked with the libavutil that PyAV uses; OpenCV may have another.
        limit = ctypes.CDLL(av._core.__file__).av_max_alloc
        limit.argtypes, limit.restype = [ctypes.c_size_t], None
        limit(wanted)
        _bound = wanted
