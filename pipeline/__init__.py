"""Streaming video inference on a ring of NPU-allocated buffers.

Names are loaded when they are first used, so that importing the package needs NumPy only.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

TYPE_CHECKING = False  # typing's own takes longer to import than all the rest, and signals wait
if TYPE_CHECKING:
    from typing import Any

    from pipeline.config.loading import Config
    from pipeline.engines.executor import Executor
    from pipeline.engines.image import ImageInput
    from pipeline.errors import (
        AllocationError,
        BindingError,
        ClosedError,
        ConfigError,
        DeviceError,
        EngineError,
        EngineNotInstalledError,
        ModelError,
        PipelineError,
        RunError,
        SinkError,
        SlotStateError,
        SourceError,
    )
    from pipeline.flow.stats import Stats
    from pipeline.memory.results import Detection, Detections, RawOutput, Result, Stamps
    from pipeline.memory.ring import Ring, RunReport, Slot
    from pipeline.pipeline import Pipeline

__all__ = [
    "AllocationError",
    "BindingError",
    "ClosedError",
    "Config",
    "ConfigError",
    "Detection",
    "Detections",
    "DeviceError",
    "EngineError",
    "EngineNotInstalledError",
    "Executor",
    "ImageInput",
    "ModelError",
    "Pipeline",
    "PipelineError",
    "RawOutput",
    "Result",
    "Ring",
    "RunError",
    "RunReport",
    "SinkError",
    "Slot",
    "SlotStateError",
    "SourceError",
    "Stamps",
    "Stats",
]

# In a clone the folder pipeline/ shadows the installed package, which alone has the native
# module: with this, `python -m pipeline` works there, too.
for _folder in filter(None, sys.path):
    _path = os.path.join(_folder, "pipeline")
    if _path not in __path__ and os.path.isdir(_path):
        __path__.append(_path)

_HOMES = {
    "pipeline.engines.executor": ("Executor",),
    "pipeline.engines.image": ("ImageInput",),
    "pipeline.config.loading": ("Config",),
    "pipeline.memory.results": ("Detection", "Detections", "RawOutput", "Result", "Stamps"),
    "pipeline.memory.ring": ("Ring", "RunReport", "Slot"),
    "pipeline.pipeline": ("Pipeline",),
    "pipeline.flow.stats": ("Stats",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME.get(name, "pipeline.errors")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
