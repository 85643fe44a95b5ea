"""The stand-in for librknnrt.so: its library, built where it is needed, and its models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import make_model
from rknn_model import Model

if TYPE_CHECKING:
    from tests.standins import NATIVE, build_library
else:
    from standins import NATIVE, build_library

__all__ = ["library", "write_model"]

_FOLDER = "tests/vendor/rknn"


def library() -> Path:
    """The library. NoCompilerError where it cannot be built."""
    sources = sorted((NATIVE / _FOLDER).glob("*.cpp"))
    names = [f"{_FOLDER}/{path.name}" for path in sources if path.name != "runtime_1_5.cpp"]
    return build_library("librknnrt.so", names, folder="rknn")


def write_model(path: Path, preset: str = "tiny") -> Model:
    """Write one of the models that ``make_model`` has."""
    model = make_model.PRESETS[preset](None)
    model.save(path)
    return model
