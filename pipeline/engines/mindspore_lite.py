"""Engine ``mindspore_lite``: where its library is, its settings, and opening a ``.ms`` model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline.engines.autotune_values import Threads, Trials
from pipeline.engines.library import first_loadable, named_library
from pipeline.errors import ConfigError, EngineNotInstalledError

if TYPE_CHECKING:
    from pipeline import _native
    from pipeline.engines.image import ImageInput
    from pipeline.engines.settings import ModelSettings

__all__ = [
    "OPTIONS",
    "MindSporeLiteOptions",
    "find_library",
    "list_devices",
    "open_engine",
    "trials",
]

# For applications on OpenHarmony, for its system, and of the release for other systems.
_SONAMES = ("libmindspore_lite_ndk.so", "libmindspore_lite.so", "libmindspore-lite.so")

_MOST_CONTEXTS = 4  # each has the model in memory

_AFFINITIES = ("none", "big", "little")
_PRIORITIES = ("none", "low", "medium", "high")
_PERFORMANCES = (*_PRIORITIES, "extreme")
_FREQUENCIES = ("none", "low", "balanced", "high", "extreme")


class MindSporeLiteOptions(BaseModel):
    """``model.options`` of engine mindspore_lite: how it runs the model."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    threads: Threads | None = Field(
        default=None,
        description="CPU threads of each context. Left out: MindSpore Lite decides. auto: "
        "measured as model.contexts is; on other devices than a CPU it is left out.",
    )
    affinity: Literal["none", "big", "little"] = Field(
        default="none", description="Which kind of core the threads are bound to."
    )
    cores: tuple[Annotated[int, Field(ge=0, le=4095)], ...] = Field(
        default=(),
        max_length=1024,
        description="Cores to bind the threads to, instead of affinity.",
    )
    fp16: bool = Field(default=False, description="Compute in half precision where the device can.")
    performance: Literal["none", "low", "medium", "high", "extreme"] = Field(
        default="none", description="Performance mode of an NNRT device."
    )
    priority: Literal["none", "low", "medium", "high"] = Field(
        default="none", description="Priority of the model's work on an NNRT device."
    )
    frequency: Literal["none", "low", "balanced", "high", "extreme"] = Field(
        default="none", description="Frequency of a Kirin NPU; none is its own choice."
    )
    cpu_fallback: bool = Field(
        default=True, description="Run operators on the CPU that the accelerator does not have."
    )
    extensions: dict[str, str] = Field(
        default_factory=dict,
        description="Other settings of an NNRT device by MindSpore Lite's own names, such as "
        "CachePath and CacheVersion.",
    )


OPTIONS = MindSporeLiteOptions
SWAPS_COLORS = True


def find_library(setting: str | None = None) -> str:
    """Path or loader name of MindSpore Lite's C library: ``setting``, else the system's.

    EngineNotInstalledError when there is none.
    """
    if setting is not None:
        return named_library(setting)
    found = first_loadable(_SONAMES)
    if found is None:
        raise EngineNotInstalledError(
            f"MindSpore Lite is not installed: none of {', '.join(_SONAMES)} is found; "
            "name the library in model.library"
        )
    return found


def open_engine(settings: ModelSettings, image: ImageInput | None) -> _native.Engine:
    """Load a ``.ms`` model and build it for ``settings.device``.

    Devices are CPU, GPU, NPU (Kirin) and NNRT, the last with ``:`` and an id, a type
    (accelerator, GPU, CPU, others) or a name where it should not choose by itself. The forced
    input shape replaces that of the first input, in the model's own layout. With ``image``,
    each image input of the types uint8, float16 and float32 is uint8 NHWC and converted in one
    pass where the model wants another type or order. Blocks. EngineNotInstalledError,
    ModelError (file, shape or type), DeviceError (absent), ConfigError (an option that is wrong
    or that this library does not know).
    """
    from pipeline import _native
    from pipeline.engines import validated_options
    from pipeline.engines.image import ImageInput

    if settings.path is None:
        raise ConfigError("missing, but engine mindspore_lite needs a model file", ("path",))
    options: MindSporeLiteOptions = validated_options("mindspore_lite", settings.options)
    folded = image if image is not None else ImageInput()
    return _native.mindspore_lite(
        find_library(settings.library),
        os.fsencode(settings.path),
        settings.device,
        contexts=settings.context_count(),
        input_shape=settings.input_shape,
        image_input=image is not None,
        swap_rb=folded.color == "rgb",
        mean=folded.mean,
        scale=folded.scale,
        threads=options.threads if isinstance(options.threads, int) else 0,
        affinity=_AFFINITIES.index(options.affinity),
        cores=options.cores,
        fp16=options.fp16,
        performance=_PERFORMANCES.index(options.performance),
        priority=_PRIORITIES.index(options.priority),
        frequency=_FREQUENCIES.index(options.frequency),
        cpu_fallback=options.cpu_fallback,
        extensions=options.extensions,
    )


def trials(settings: ModelSettings, cores: int) -> Trials:
    """On a CPU a context for each core at most, with its share of the cores or one thread."""
    if settings.device != "CPU":
        return Trials(_MOST_CONTEXTS)
    return Trials(cores, lambda contexts: (max(1, cores // contexts), 1))


def list_devices(library: str | None = None) -> tuple[str, list[tuple[str, str]]]:
    """The family of the library's names, OH_AI or MS, and each device as (id, full name)."""
    from pipeline import _native

    return _native.mindspore_lite_devices(find_library(library))
