"""Engine ``mindspore_lite``: where its library is, its settings, and opening a ``.ms`` model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline.engines import open_native
from pipeline.engines.autotune_values import Threads, Trials
from pipeline.engines.library import first_loadable, named_library
from pipeline.errors import EngineNotInstalledError

if TYPE_CHECKING:
    from pipeline import _native
    from pipeline.engines.image import ImageInput
    from pipeline.engines.settings import ModelSettings

__all__ = [
    "OPTIONS",
    "SWAPS_COLORS",
    "TAKES_DEVICE",
    "MindSporeLiteOptions",
    "find_library",
    "list_devices",
    "needs_file",
    "open_engine",
    "trials",
]

# For applications on OpenHarmony, for its system, and of the release for other systems.
_SONAMES = ("libmindspore_lite_ndk.so", "libmindspore_lite.so", "libmindspore-lite.so")

_MOST_CONTEXTS = 4  # each has the model in memory


class MindSporeLiteOptions(BaseModel):
    """``model.options`` of engine mindspore_lite: how it runs the model."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    threads: Threads | None = Field(
        default=None,
        description="CPU threads of each context. By default MindSpore Lite decides. auto: "
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
TAKES_DEVICE = True


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


def needs_file(options: Mapping[str, object]) -> bool:
    """True: it runs models from files only."""
    return True


def open_engine(
    settings: ModelSettings, options: MindSporeLiteOptions, image: ImageInput | None
) -> _native.Engine:
    """Load a ``.ms`` model and build it for ``settings.device``.

    Devices are CPU, GPU, NPU (Kirin) and NNRT, the last with ``:`` and an id, a type
    (accelerator, GPU, CPU, others) or a name where it should not choose by itself. The forced
    input shape replaces that of the first input, in the model's own layout. Image inputs of the
    types uint8, float16 and float32 are converted in one pass where the model wants another type
    or order.
    """
    threads = None if options.threads == "auto" else options.threads
    own = {**options.model_dump(), "threads": threads}
    return open_native("mindspore_lite", find_library(settings.library), settings, image, own)


def trials(settings: ModelSettings, cores: int) -> Trials:
    """On a CPU a context for each core at most, with its share of the cores or one thread."""
    if settings.device != "CPU":
        return Trials(_MOST_CONTEXTS)
    return Trials(cores, lambda contexts: (max(1, cores // contexts), 1))


def list_devices(library: str | None = None) -> tuple[str, list[tuple[str, str]]]:
    """The family of the library's names, OH_AI or MS, and each device as (id, full name)."""
    from pipeline import _native

    return _native.engine_devices("mindspore_lite", find_library(library))
