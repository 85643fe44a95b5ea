"""The stand-in for librknnrt.so, for tests; ``standin.py`` beside its sources drives it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.standins import NATIVE, build_library
else:
    from standins import NATIVE, build_library

__all__ = ["library"]

_FOLDER = "tests/vendor/rknn"


def library() -> Path:
    """The library that RKNN_STANDIN names, else one that is built. NoCompilerError."""
    if named := os.environ.get("RKNN_STANDIN"):
        return Path(named).resolve()
    found = sorted((NATIVE / _FOLDER).glob("*.cpp"))
    sources = [f"{_FOLDER}/{path.name}" for path in found if path.name != "runtime_1_5.cpp"]
    # Results are numpy's only where nothing is multiplied and added at once.
    return build_library("librknnrt.so", sources, folder="rknn", options=["-ffp-contract=off"])
