"""Engine rknn on its stand-in, as the conformance suite opens it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from pipeline import EngineNotInstalledError, Executor
from pipeline.engines.awaitable_context import AwaitableContext
from tests import rknn_standin
from tests.standins import NoCompilerError, scratch

__all__ = ["open_rknn", "rknn_library"]


def rknn_library() -> str:
    """The stand-in's library. EngineNotInstalledError where it cannot be built."""
    try:
        return str(rknn_standin.library())
    except NoCompilerError as error:
        raise EngineNotInstalledError(str(error)) from None


@functools.cache
def _model() -> Path:
    path = scratch() / "tiny.rknn"
    rknn_standin.write_model(path)
    return path


def open_rknn(options: dict[str, Any], **settings: Any) -> AwaitableContext[Executor]:
    """The engine in one of its modes and bindings."""
    return Executor.open(
        _model(), engine="rknn", library=rknn_library(), options=options, **settings
    )
