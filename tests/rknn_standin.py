"""The stand-in for librknnrt.so, for tests: its library, built where it is needed, and models.

``standin.py`` beside its sources drives it.
"""

from __future__ import annotations

import os
from pathlib import Path

import make_model
from rknn_model import Model

from tests.standins import NATIVE, build_library

__all__ = ["library", "write_model"]

_FOLDER = "tests/vendor/rknn"


def library() -> Path:
    """The library that RKNN_STANDIN names, else one that is built. NoCompilerError."""
    if named := os.environ.get("RKNN_STANDIN"):
        return Path(named).resolve()
    found = sorted((NATIVE / _FOLDER).glob("*.cpp"))
    sources = [f"{_FOLDER}/{path.name}" for path in found if path.name != "runtime_1_5.cpp"]
    # Results are numpy's only where nothing is multiplied and added at once.
    return build_library("librknnrt.so", sources, folder="rknn", options=["-ffp-contract=off"])


def write_model(path: Path, preset: str = "tiny") -> Model:
    """Write one of the models that ``make_model`` has."""
    model = make_model.PRESETS[preset](None)
    model.save(path)
    return model
