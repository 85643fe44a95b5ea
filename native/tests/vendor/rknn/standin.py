"""The stand-in librknnrt.so from Python: what it counted, and its calls where a test needs them.

Needs nothing but the standard library. An opened library is one for the whole process, so that the
counts are those of every client that opened the same file.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

__all__ = ["Standin", "Stats"]


class Stats(ctypes.Structure):
    """The counts of `standin::Stats`, in its order."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "calls",
            "runs",
            "allocations",
            "live_mems",
            "live_contexts",
            "live_outputs",
            "live_weights",
            "misuse",
            "binds",
            "binds_ignored",
            "syncs",
            "copies",
            "copied_bytes",
            "conversions",
            "internal_bytes",
            "device_cpu_ns",
            "copy_cpu_ns",
            "priority_raises",
        )
    ]

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return {field[0]: int(getattr(self, field[0])) for field in self._fields_}


class Standin:
    """The library at `path`; OSError where there is none or another one."""

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        self.library = ctypes.CDLL(self.path)
        if not hasattr(self.library, "standin_stats"):
            raise OSError(f"{self.path}: is not the stand-in")

    def stats(self) -> dict[str, int]:
        """Counts since the library was opened."""
        result = Stats()
        if self.library.standin_stats(ctypes.byref(result), ctypes.sizeof(result)) != 0:
            raise OSError(f"{self.path}: counts otherwise; standin.py and the library differ")
        return result.as_dict()

    def last_misuse(self) -> str:
        """What was last complained of, or an empty string."""
        text = ctypes.create_string_buffer(1024)
        self.library.standin_last_misuse(text, len(text))
        return text.value.decode()

    def release_hangs(self) -> None:
        """End the runs that hang."""
        self.library.standin_release_hangs()

    def hanging(self) -> int:
        """Runs that hang at this moment."""
        return int(self.library.standin_hanging())
