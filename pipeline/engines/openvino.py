"""Engine ``openvino``: where its library is, its settings, and opening a model on it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline.engines import open_native
from pipeline.engines.autotune_values import Threads, Trials
from pipeline.engines.library import first_loadable, named_library
from pipeline.errors import EngineNotInstalledError, install_advice

if TYPE_CHECKING:
    from pipeline import _native
    from pipeline.engines.image import ImageInput
    from pipeline.engines.settings import ModelSettings

__all__ = [
    "OPTIONS",
    "SWAPS_COLORS",
    "TAKES_DEVICE",
    "OpenVINOOptions",
    "find_library",
    "list_devices",
    "needs_file",
    "open_engine",
    "trials",
]

_SONAME = "libopenvino_c.so"
_OLDEST = (2026, 4)
_MOST_CONTEXTS = 8
_INSTALL = install_advice("openvino")


class OpenVINOOptions(BaseModel):
    """``model.options`` of engine openvino: how it compiles and runs the model."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    streams: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Inferences that the device computes side by side. Left out: as many as the "
        "model has contexts when those are more than one and the device is a CPU or GPU, else "
        "OpenVINO decides.",
    )
    threads: Threads | None = Field(
        default=None,
        description="CPU threads for inference, all streams together. Left out: OpenVINO decides, "
        "which mostly takes every core. auto: measured as model.contexts is; on other devices "
        "than a CPU it is left out.",
    )
    hint: Literal["latency", "throughput", "none"] = Field(
        default="latency",
        description="What OpenVINO tunes for: the time of one inference, or the number of "
        "inferences a second. none leaves it to the device.",
    )
    cache_dir: Path | None = Field(
        default=None,
        description="Folder where compiled models are kept, so that the next start is faster. "
        "It is created when absent.",
    )
    inference_precision: Literal["f32", "f16", "bf16"] | None = Field(
        default=None,
        description="Floating-point type to compute in. Left out: the fastest that the device "
        "has, on some CPUs bf16, which rounds to about three digits.",
    )
    properties: dict[str, str] = Field(
        default_factory=dict,
        description="Other OpenVINO properties by their own names, such as ENABLE_CPU_PINNING; "
        "they win over the settings above.",
    )

    def to_properties(self, contexts: int = 1, device: str = "CPU") -> dict[str, str]:
        """Properties for compiling, by OpenVINO's names.

        With several ``contexts`` and no ``streams``, NUM_STREAMS is the number of contexts:
        the latency hint alone makes one stream, on which the contexts would only queue up.
        Devices that are neither a CPU nor a GPU are not given it, as they refuse it or have
        their own idea; the number of threads is left to OpenVINO unless set.
        """
        streams = self.streams
        if streams is None and contexts > 1 and device.split(".")[0] in ("CPU", "GPU"):
            streams = contexts
        named = {
            "PERFORMANCE_HINT": None if self.hint == "none" else self.hint.upper(),
            "NUM_STREAMS": streams,
            "INFERENCE_NUM_THREADS": None if self.threads == "auto" else self.threads,
            "CACHE_DIR": self.cache_dir and self.cache_dir.expanduser(),
            "INFERENCE_PRECISION_HINT": self.inference_precision,
        }
        return {key: str(value) for key, value in named.items() if value is not None} | (
            self.properties
        )


OPTIONS = OpenVINOOptions
SWAPS_COLORS = False  # it would be one more pass over the image
TAKES_DEVICE = True


def find_library(setting: str | None = None) -> str:
    """Path or loader name of OpenVINO's C library.

    ``setting`` when given; else the library beside the installed ``openvino`` package, which
    is found without importing it; else the system's. EngineNotInstalledError when there is
    none or the package is too old.
    """
    if setting is not None:
        return named_library(setting)
    packaged = _packaged_library()
    if packaged is not None:
        _check_version()
        return str(packaged)
    found = first_loadable([_SONAME])
    if found is None:
        raise EngineNotInstalledError(f"OpenVINO is not installed: {_INSTALL}")
    return found


def needs_file(options: Mapping[str, object]) -> bool:
    """True: it runs models from files only."""
    return True


def open_engine(
    settings: ModelSettings, options: OpenVINOOptions, image: ImageInput | None
) -> _native.Engine:
    """Load an ONNX, IR (.xml) or TFLite model and compile it for ``settings.device``.

    The device is named as OpenVINO does: CPU, GPU.1, NPU, AUTO:NPU,CPU. The forced input shape
    replaces that of the first input, in the model's own layout.
    """
    properties = options.to_properties(settings.context_count(), settings.device)
    library = find_library(settings.library)
    return open_native("openvino", library, settings, image, {"properties": properties})


def trials(settings: ModelSettings, cores: int) -> Trials:
    """On a CPU a stream for each core at most, with all cores or one thread for each stream."""
    if settings.device.split(".")[0] != "CPU":
        return Trials(_MOST_CONTEXTS)
    return Trials(cores, lambda contexts: (max(cores, contexts), contexts))


def list_devices(library: str | None = None) -> tuple[str, list[tuple[str, str]]]:
    """OpenVINO's version, and each usable device as (id, full name)."""
    from pipeline import _native

    return _native.engine_devices("openvino", find_library(library))


def _packaged_library() -> Path | None:
    spec = importlib.util.find_spec("openvino")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        # The version is part of the name: libopenvino_c.so.2641.
        found = sorted((Path(folder) / "libs").glob(f"{_SONAME}*"))
        if found:
            return found[-1]
    return None


def _check_version() -> None:
    try:
        version = importlib.metadata.version("openvino")
    except importlib.metadata.PackageNotFoundError:
        return
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise EngineNotInstalledError(
            f"OpenVINO {version} is too old, {oldest} or newer is needed: {_INSTALL}"
        )
