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

    from pipeline._native import TensorSpec
    from pipeline.clock import ManualClock
    from pipeline.config.loading import Config, load
    from pipeline.contracts import EngineModule, Postprocess, Reader, Sink, StreamInfo
    from pipeline.engines.autotune_values import Trials
    from pipeline.engines.executor import Executor
    from pipeline.engines.image import ImageInput
    from pipeline.errors import (
        Abandoned,
        AllocationError,
        BindingError,
        ClosedError,
        ConfigError,
        DeviceError,
        EngineError,
        EngineNotInstalledError,
        FormatChangedError,
        ModelError,
        PipelineError,
        ReaderLeftError,
        RunError,
        SinkError,
        SlotStateError,
        SourceError,
    )
    from pipeline.flow.events import Event
    from pipeline.flow.stats import CameraStats, Percentiles, Stats
    from pipeline.machine.runner import Health
    from pipeline.memory.frame import FrameFormat
    from pipeline.memory.results import (
        Detection,
        Detections,
        FrameMapping,
        RawOutput,
        Result,
        Stamps,
    )
    from pipeline.memory.ring import Ring, RunReport, Slot
    from pipeline.pipeline import Pipeline

__all__ = [
    "Abandoned",
    "AllocationError",
    "BindingError",
    "CameraStats",
    "ClosedError",
    "Config",
    "ConfigError",
    "Detection",
    "Detections",
    "DeviceError",
    "EngineError",
    "EngineModule",
    "EngineNotInstalledError",
    "Event",
    "Executor",
    "FormatChangedError",
    "FrameFormat",
    "FrameMapping",
    "Health",
    "ImageInput",
    "ManualClock",
    "ModelError",
    "Percentiles",
    "Pipeline",
    "PipelineError",
    "Postprocess",
    "RawOutput",
    "Reader",
    "ReaderLeftError",
    "Result",
    "Ring",
    "RunError",
    "RunReport",
    "Sink",
    "SinkError",
    "Slot",
    "SlotStateError",
    "SourceError",
    "Stamps",
    "Stats",
    "StreamInfo",
    "TensorSpec",
    "Trials",
    "load",
]

# In a clone the folder pipeline/ shadows the installed package, which alone has the native
# module: with this, `python -m pipeline` works there, too.
for _folder in filter(None, sys.path):
    _path = os.path.join(_folder, "pipeline")
    if _path not in __path__ and os.path.isdir(_path):
        __path__.append(_path)

_HOMES = {
    "pipeline._native": ("TensorSpec",),
    "pipeline.clock": ("ManualClock",),
    "pipeline.config.loading": ("Config", "load"),
    "pipeline.contracts": ("EngineModule", "Postprocess", "Reader", "Sink", "StreamInfo"),
    "pipeline.engines.autotune_values": ("Trials",),
    "pipeline.engines.executor": ("Executor",),
    "pipeline.engines.image": ("ImageInput",),
    "pipeline.flow.events": ("Event",),
    "pipeline.flow.stats": ("CameraStats", "Percentiles", "Stats"),
    "pipeline.machine.runner": ("Health",),
    "pipeline.memory.frame": ("FrameFormat",),
    "pipeline.memory.results": (
        "Detection",
        "Detections",
        "FrameMapping",
        "RawOutput",
        "Result",
        "Stamps",
    ),
    "pipeline.memory.ring": ("Ring", "RunReport", "Slot"),
    "pipeline.pipeline": ("Pipeline",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME.get(name, "pipeline.errors")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
