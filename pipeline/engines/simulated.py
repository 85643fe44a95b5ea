"""The simulated NPU: driver memory, set latency, deterministic outputs and scripted faults.

It ships for users' tests: the whole pipeline runs on it without a model or a device.
Element k of output j is byte ``k * N // M`` of input 0, plus j, where N is the number of
bytes of input 0 and M the number of elements of the output. Memory is watched: a write
past its ends, or memory of another tensor, fails the run by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from pipeline.engines.autotune_values import Trials

if TYPE_CHECKING:
    from pipeline import _native
    from pipeline.engines.image import ImageInput
    from pipeline.engines.settings import ModelSettings

__all__ = [
    "MEMORY",
    "OPTIONS",
    "SWAPS_COLORS",
    "TAKES_DEVICE",
    "SimulatedOptions",
    "expected_output",
    "list_devices",
    "needs_file",
    "open_engine",
    "slot_bytes",
    "trials",
]

_Shape = Annotated[
    list[Annotated[int, Field(ge=1, le=2**31 - 1)]], Field(min_length=1, max_length=8)
]
_Run = Annotated[int, Field(ge=1, le=2**63 - 1)]
_Dtype = Literal[
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
]
_DAY_MS = 86_400_000


class SimulatedTensor(BaseModel):
    """An output of the simulated NPU."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: str = Field(min_length=1, description="Name of the tensor.")
    shape: _Shape = Field(description="Its shape.")
    dtype: _Dtype = Field(default="float32", description="NumPy's name of its type.")


class SimulatedOptions(BaseModel):
    """``model.options`` of the simulated NPU. Runs are counted from 1 over all contexts."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    outputs: list[SimulatedTensor] = Field(
        default_factory=lambda: [SimulatedTensor(name="output", shape=[1, 10])],
        min_length=1,
        description="The tensors that it writes.",
    )
    latency_ms: float = Field(
        default=0.0, ge=0, le=_DAY_MS, description="Time of one run, milliseconds."
    )
    cores: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Runs that it computes at the same time; those of more contexts wait. Left "
        "out: as many as there are contexts.",
    )
    jitter_ms: float = Field(
        default=0.0,
        ge=0,
        le=_DAY_MS,
        description="Spread around it: half width (uniform), standard deviation (normal) or "
        "mean of an extra (exponential).",
    )
    distribution: Literal["fixed", "uniform", "normal", "exponential"] = Field(
        default="fixed", description="How the time of a run is spread."
    )
    seed: int = Field(default=0, ge=0, le=2**63 - 1, description="Seed of the spread.")
    fail_runs: list[_Run] = Field(default_factory=list, description="Runs that fail.")
    hang_runs: list[_Run] = Field(default_factory=list, description="Runs that hang first.")
    hang_seconds: float = Field(
        default=1e9, gt=0, le=1e9, description="For how long those hang, seconds."
    )
    refuse_allocation: int | None = Field(
        default=None,
        ge=0,
        le=2**31 - 1,
        description="This driver allocation, from 0, and later ones are refused.",
    )


OPTIONS = SimulatedOptions
SWAPS_COLORS = True  # what it computes knows no colors
TAKES_DEVICE = False
MEMORY = 1 << 30  # bytes that the driver gives
_INPUT_SHAPE = (1, 320, 320, 3)


def needs_file(options: Mapping[str, object]) -> bool:
    """False: it has no model."""
    return False


def open_engine(
    settings: ModelSettings, options: SimulatedOptions, image: ImageInput | None
) -> _native.Engine:
    """A simulated NPU with one u8 NHWC input of ``settings.input_shape``."""
    from pipeline import _native

    shape = settings.input_shape or _INPUT_SHAPE
    given = {
        **options.model_dump(),
        "contexts": settings.context_count(),
        "inputs": [_native.TensorSpec("input", "uint8", shape, "NHWC" if len(shape) == 4 else "")],
        "outputs": [
            _native.TensorSpec(each.name, each.dtype, each.shape) for each in options.outputs
        ],
    }
    return _native.open_engine("simulated", given)


def slot_bytes(settings: ModelSettings) -> tuple[int, int]:
    """Driver memory of the inputs and of the outputs of one slot, at least."""
    options = SimulatedOptions(**settings.options)
    outputs = sum(np.dtype(t.dtype).itemsize * math.prod(t.shape) for t in options.outputs)
    return math.prod(settings.input_shape or _INPUT_SHAPE), outputs


def trials(settings: ModelSettings, cores: int) -> Trials:
    """At most 8 contexts; how many of them help is measured, as on a real NPU."""
    return Trials(8)


def list_devices(library: str | None) -> tuple[str, list[tuple[str, str]]]:
    """The one simulated device."""
    from pipeline import _native

    return _native.__version__, _native.engine_devices("simulated", "")[1]


def expected_output(
    image: npt.NDArray[Any], shape: tuple[int, ...], dtype: npt.DTypeLike, index: int = 0
) -> npt.NDArray[Any]:
    """Expected output ``index`` of ``shape`` and ``dtype`` after a run on ``image``."""
    data = np.ascontiguousarray(image).reshape(-1).view(np.uint8)
    count = int(np.prod(shape))
    values = data[np.arange(count) * len(data) // count].astype(np.uint32) + np.uint32(index)
    kept = values & np.uint32(1) if np.dtype(dtype) == np.bool_ else values
    return kept.astype(dtype).reshape(shape)
