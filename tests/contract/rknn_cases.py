"""Engine rknn on its stand-in, as the conformance suite opens it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import make_model

from pipeline import EngineNotInstalledError, Executor
from pipeline.opening import Opening

if TYPE_CHECKING:
    from tests.standins import NATIVE, NoCompilerError, build_library, scratch
else:
    from standins import NATIVE, NoCompilerError, build_library, scratch

__all__ = ["open_rknn", "rknn_library"]

_FOLDER = "tests/vendor/rknn"


def rknn_library() -> str:
    """The stand-in's library. EngineNotInstalledError where it cannot be built."""
    sources = sorted((NATIVE / _FOLDER).glob("*.cpp"))
    names = [f"{_FOLDER}/{path.name}" for path in sources if path.name != "runtime_1_5.cpp"]
    try:
        return str(build_library("librknnrt.so", names, folder="rknn"))
    except NoCompilerError as error:
        raise EngineNotInstalledError(str(error)) from None


@functools.cache
def _model() -> Path:
    path = scratch() / "tiny.rknn"
    make_model.PRESETS["tiny"](None).save(path)
    return path


def open_rknn(options: dict[str, Any], **settings: Any) -> Opening[Executor]:
    """The engine in one of its modes and bindings."""
    return Executor.open(
        _model(), engine="rknn", library=rknn_library(), options=options, **settings
    )
