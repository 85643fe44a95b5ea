"""Engine nnrt on its stand-ins, as the conformance suite opens it."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pipeline import EngineNotInstalledError, Executor
from pipeline.engines.awaitable_context import AwaitableContext
from tests import nnrt_standin
from tests.nnrt_standin import StandInTensor
from tests.standins import NoCompilerError

__all__ = ["nnrt_library", "open_nnrt"]

_INPUTS = (
    StandInTensor("image", "uint8", (1, 24, 32, 3), "NHWC"),
    StandInTensor("more", "float32", (1, 5)),
)
_OUTPUTS = (
    StandInTensor("scores", "float32", (1, 10)),
    StandInTensor("map", "uint8", (1, 6, 8, 2)),
    StandInTensor("halves", "float16", (1, 7)),
    StandInTensor("wide", "int64", (3, 5)),
)


@functools.cache
def _model() -> Path:
    folder = tempfile.mkdtemp(prefix="nnrt-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return nnrt_standin.write_model(Path(folder) / "model.om", _INPUTS, _OUTPUTS)


def nnrt_library(version: str) -> str:
    """The stand-in's library. EngineNotInstalledError where it cannot be built."""
    try:
        return str(nnrt_standin.library(version))
    except NoCompilerError as error:
        raise EngineNotInstalledError(str(error)) from None


def open_nnrt(version: str, **settings: Any) -> AwaitableContext[Executor]:
    """The engine with the calls of API 9 (``v1``) or 11 (``v2``)."""
    return Executor.open(
        _model(),
        engine="nnrt",
        device="npu",
        library=nnrt_library(version),
        options=nnrt_standin.options(version, _INPUTS, _OUTPUTS),
        **settings,
    )
