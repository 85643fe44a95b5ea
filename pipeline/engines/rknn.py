"""Engine ``rknn``: Rockchip NPUs through librknnrt.so; its settings and opening a model."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline.engines import open_native
from pipeline.engines.autotune_values import Trials
from pipeline.engines.library import named_library
from pipeline.errors import ConfigError, EngineNotInstalledError

if TYPE_CHECKING:
    from pipeline import _native
    from pipeline.engines.image import ImageInput
    from pipeline.engines.settings import ModelSettings

__all__ = [
    "OPTIONS",
    "SWAPS_COLORS",
    "TAKES_DEVICE",
    "RKNNOptions",
    "find_library",
    "list_devices",
    "needs_file",
    "open_engine",
    "trials",
]

_SONAME = "librknnrt.so"
_INSTALL = (
    "Rockchip's runtime is not installed: put librknnrt.so of the rknn-toolkit2 release that "
    "converted the model (rknpu2/runtime/Linux/librknn_api/aarch64) into /usr/lib and run "
    "ldconfig, or name it in model.library"
)
_DRIVER_VERSIONS = (
    "sys/kernel/debug/rknpu/version",
    "sys/module/rknpu/version",
    "proc/rknpu/version",
)
_EMBEDDED_VERSION = re.compile(rb"librknnrt version: ([\w.]+)")


class RKNNOptions(BaseModel):
    """``model.options`` of engine rknn: how slots and the NPU share memory, and which cores."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    mode: Literal["zero_copy", "general"] = Field(
        default="zero_copy",
        description="zero_copy: the NPU reads and writes the slots' own memory. general: the "
        "runtime copies to and from its memory, which every version of it can.",
    )
    binding: Literal["context_per_slot", "rebind", "auto"] = Field(
        default="context_per_slot",
        description="How the memory of several slots reaches the NPU in mode zero_copy. "
        "context_per_slot: a duplicated runtime context for each slot, bound once, as the vendor "
        "documents; each needs internal memory. rebind: one for each context, bound again "
        "before each run; tested at the start. auto: rebind if the runtime passes that test.",
    )
    cores: list[Annotated[int, Field(ge=0, le=2)]] = Field(
        default_factory=list,
        max_length=3,
        description="NPU cores to spread the contexts over, for example [0, 1]. By default all.",
    )
    dequantize: bool = Field(
        default=True,
        description="Convert quantised outputs to float32. false: they stay as they are, with "
        "scale and zero point in the tensor's quantization.",
    )
    sync: Literal["runtime", "explicit"] = Field(
        default="runtime",
        description="Who keeps the CPU's caches and the NPU's memory consistent: the runtime in "
        "each run, or calls for each tensor by this program.",
    )
    priority: Literal["high", "medium", "low"] = Field(
        default="high", description="Priority of the NPU's work among processes."
    )
    raise_priority: bool = Field(
        default=False,
        description="Let the runtime raise the whole process to nice -19, as it does by default "
        "if that is permitted.",
    )


OPTIONS = RKNNOptions
SWAPS_COLORS = False
TAKES_DEVICE = False


def find_library(setting: str | None = None) -> str:
    """Path or loader name of librknnrt.so; EngineNotInstalledError says what to install."""
    from pipeline import _native

    library = named_library(setting) if setting else _SONAME
    try:
        _native.engine_devices("rknn", library)
    except EngineNotInstalledError as error:
        if setting is not None:
            raise
        if "cannot open shared object file" in str(error):
            raise EngineNotInstalledError(_INSTALL) from None
        raise
    return library


def needs_file(options: Mapping[str, object]) -> bool:
    """True: it runs models from files only."""
    return True


def open_engine(
    settings: ModelSettings, options: RKNNOptions, image: ImageInput | None
) -> _native.Engine:
    """Load a .rknn model on the NPU.

    Image inputs are quantised and normalised by the NPU as the model was converted.
    ``input_shape`` chooses among the shapes of a model that was converted for several.
    """
    if "device" in settings.model_fields_set and settings.device.upper() != "NPU":
        raise ConfigError(
            f"{settings.device!r}, but engine rknn runs on the NPU only; options.cores chooses "
            "its cores",
            ("device",),
        )
    _check_image(image)
    own = {"device": None, "image": None, "image_input": image is not None}
    library = find_library(settings.library)
    return open_native("rknn", library, settings, image, {**options.model_dump(), **own})


def trials(settings: ModelSettings, cores: int) -> Trials:
    """Two for each core of the NPU that may be used: one computes, the other converts."""
    return Trials(2 * (len(settings.options.get("cores", ())) or 3))


def list_devices(library: str | None = None) -> tuple[str, list[tuple[str, str]]]:
    """The runtime's version, and the NPU with its chip and driver; empty where there is none.

    The runtime reports its version only with a model, so it is read from the library's file.
    """
    path = find_library(library)
    return _library_version(path), _find_npu(Path("/"))


def _check_image(image: ImageInput | None) -> None:
    if image is None:
        return
    for name in ("mean", "scale"):
        if getattr(image, name):
            raise ConfigError(
                "an RKNN model brings its own; give mean_values and std_values to its conversion",
                ("image", name),
            )
    if image.color != "bgr":
        raise ConfigError(
            "engine rknn cannot swap colors; write pixels in the order of the model",
            ("image", "color"),
        )


def _library_version(library: str) -> str:
    try:
        if os.sep in library:
            path = Path(library)
        else:
            with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
                mapped = (line.split(maxsplit=5)[-1].strip() for line in maps if library in line)
                path = Path(next(mapped, library))
        found = _EMBEDDED_VERSION.search(path.read_bytes())
    except OSError:
        found = None
    return found[1].decode() if found else "of unknown version"


def _find_npu(root: Path) -> list[tuple[str, str]]:
    try:
        compatible = (root / "proc/device-tree/compatible").read_bytes().split(b"\0")
    except OSError:
        return []
    ours = [name for name in compatible if name.startswith(b"rockchip,rk")]
    chips = [name.partition(b",")[2].decode() for name in ours]
    if not chips:
        return []
    driver = "version needs root"
    for name in _DRIVER_VERSIONS:
        try:
            driver = (root / name).read_text(encoding="utf-8", errors="replace").strip()
            break
        except OSError:
            continue
    return [("NPU", f"{chips[-1].upper()}, driver {driver.removeprefix('RKNPU driver: ')}")]
