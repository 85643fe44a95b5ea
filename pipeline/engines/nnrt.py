"""Engine ``nnrt``: OpenHarmony's Neural Network Runtime; its settings, and opening a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline.engines import open_native
from pipeline.engines.autotune_values import Trials
from pipeline.engines.library import first_loadable, named_library
from pipeline.errors import ConfigError, EngineNotInstalledError

if TYPE_CHECKING:
    from pipeline import _native
    from pipeline.engines.image import ImageInput
    from pipeline.engines.settings import ModelSettings

__all__ = [
    "OPTIONS",
    "SWAPS_COLORS",
    "TAKES_DEVICE",
    "NNRTOptions",
    "NNRTTensor",
    "find_library",
    "list_devices",
    "needs_file",
    "open_engine",
    "trials",
]

_SONAME = "libneural_network_runtime.so"

_Shape = Annotated[
    tuple[Annotated[int, Field(ge=1, le=2**31 - 1)], ...], Field(min_length=1, max_length=8)
]


class NNRTTensor(BaseModel):
    """Description of an input or output by the user, for a runtime that gives none."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: str = Field(min_length=1, description="Name of the tensor.")
    shape: _Shape = Field(description="Its shape, in the model's own order.")
    dtype: str = Field(default="float32", description="NumPy's name of its type.")
    layout: Literal["", "NHWC", "NCHW"] = Field(
        default="", description="Order of an image's dimensions; empty for anything else."
    )


class NNRTOptions(BaseModel):
    """``model.options`` of engine nnrt: how it compiles and runs the model."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    cache_dir: Path | None = Field(
        default=None,
        description="Folder of compiled models. With model.path the model is compiled into it, or "
        "taken from it; without, the model is the cache alone.",
    )
    cache_version: int = Field(
        default=0, ge=0, le=2**32 - 1, description="Version of the model in that folder."
    )
    performance: Literal["none", "low", "medium", "high", "extreme"] | None = Field(
        default=None, description="Performance mode. Left out: the runtime's own choice."
    )
    priority: Literal["none", "low", "medium", "high"] | None = Field(
        default=None,
        description="Priority of the model's work. Left out: the runtime's own choice.",
    )
    float16: bool | None = Field(
        default=None, description="Compute float32 models in half precision."
    )
    inputs: tuple[NNRTTensor, ...] = Field(
        default=(),
        max_length=200,
        description="The model's inputs. Needed with NNRT of API 9 or 10, which does not describe "
        "them; otherwise only to fill in sizes that the model leaves open.",
    )
    outputs: tuple[NNRTTensor, ...] = Field(
        default=(), max_length=200, description="The model's outputs, likewise."
    )
    idle_seconds: float = Field(
        default=600.0,
        ge=0,
        le=1e9,
        description="NNRT unloads a model that was idle this long. The run that loads it again may "
        "fail and is then tried once more.",
    )


OPTIONS = NNRTOptions
SWAPS_COLORS = True
TAKES_DEVICE = True


def find_library(setting: str | None = None) -> str:
    """Path or loader name of the runtime's library: ``setting``, else the system's.

    EngineNotInstalledError when there is none.
    """
    if setting is not None:
        return named_library(setting)
    found = first_loadable([_SONAME])
    if found is None:
        raise EngineNotInstalledError(
            f"NNRT is not installed: {_SONAME} is part of OpenHarmony; model.library can name it"
        )
    return found


def needs_file(options: Mapping[str, object]) -> bool:
    """True unless the compiled model is in ``cache_dir``."""
    return options.get("cache_dir") is None


def open_engine(
    settings: ModelSettings, options: NNRTOptions, image: ImageInput | None
) -> _native.Engine:
    """Load an offline model file of the device's vendor, or a compiled cache.

    The device is an id, a name, or a type: accelerator (or npu), gpu, cpu, others; the
    ``devices`` command lists them. The forced input shape fills in what the model leaves open of
    its first input. Image inputs of the types uint8, float16 and float32 are converted in one
    pass where the model wants another type or order.
    """
    own = {
        **options.model_dump(),
        "inputs": [_spec("inputs", tensor) for tensor in options.inputs],
        "outputs": [_spec("outputs", tensor) for tensor in options.outputs],
        "cache_dir": _cache(options.cache_dir, may_make=settings.path is not None),
    }
    return open_native("nnrt", find_library(settings.library), settings, image, own)


def trials(settings: ModelSettings, cores: int) -> Trials:
    """Each context has the compiled model in memory, so a few."""
    return Trials(4)


def list_devices(library: str | None = None) -> tuple[str, list[tuple[str, str]]]:
    """Calls that the runtime has, and each device as (id, name and type)."""
    from pipeline import _native

    return _native.engine_devices("nnrt", find_library(library))


def _cache(folder: Path | None, may_make: bool) -> str:
    if folder is None:
        return ""
    folder = folder.expanduser()
    if may_make:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder}: {error.strerror}", ("options", "cache_dir")) from None
    return str(folder)


def _spec(option: str, tensor: NNRTTensor) -> _native.TensorSpec:
    from pipeline import _native

    path, name = ("options", option), repr(tensor.name)
    if tensor.layout and len(tensor.shape) != 4:
        needs = f"{tensor.layout} needs 4 dimensions, not {len(tensor.shape)}"
        raise ConfigError(f"{name}: {needs}", path)
    try:
        return _native.TensorSpec(tensor.name, tensor.dtype, tensor.shape, tensor.layout)
    except TypeError:
        raise ConfigError(f"{name}: dtype {tensor.dtype!r} is unknown", path) from None
