"""The C++ core: driver memory, slots and engine contexts (``native/``)."""

from collections.abc import Sequence
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

__version__: str

Direction = Literal["input", "output"]
SlotState = Literal["free", "filling", "submitted", "done", "leased"]
Route = Literal["slot", "bound", "copied"]

class Resizer:
    def resize(self, frame: npt.NDArray[np.uint8], into: npt.NDArray[np.uint8]) -> None: ...

@final
class BgrResizer(Resizer):
    def __init__(
        self, rows: slice, columns: slice, height: int, width: int, swap: bool = False
    ) -> None: ...

@final
class PlanesResizer(Resizer):
    def __init__(
        self,
        rows: slice,
        columns: slice,
        height: int,
        width: int,
        weights: Sequence[Sequence[float]],
        full_range: bool,
    ) -> None: ...

@final
class Quantization:
    @property
    def scale(self) -> float: ...
    @property
    def zero_point(self) -> int: ...

@final
class TensorSpec:
    def __init__(
        self,
        name: str,
        dtype: npt.DTypeLike,
        shape: Sequence[int],
        layout: str = "",
        row_stride: int = 0,
        quantization: tuple[float, int] | None = None,
        strides: Sequence[int] = (),
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def layout(self) -> str: ...
    @property
    def row_stride(self) -> int: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def driver_bytes(self) -> int: ...
    @property
    def quantization(self) -> Quantization | None: ...

@final
class Counters:
    @property
    def allocations(self) -> int: ...
    @property
    def frees(self) -> int: ...
    @property
    def live_blocks(self) -> int: ...
    @property
    def live_bytes(self) -> int: ...
    @property
    def high_water_bytes(self) -> int: ...

@final
class Engine:
    """A loaded model on one device; made by ``openvino``, ``rknn`` or ``simulated``."""

    @property
    def name(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def contexts(self) -> int: ...
    @property
    def rebinds(self) -> bool: ...
    @property
    def notes(self) -> dict[str, str]: ...

@final
class Executor:
    def __init__(
        self, engine: Engine, *, memory_limit: int = ..., busy_timeout: float = ...
    ) -> None: ...
    @property
    def inputs(self) -> Sequence[TensorSpec]: ...
    @property
    def outputs(self) -> Sequence[TensorSpec]: ...
    @property
    def contexts(self) -> int: ...
    def counters(self) -> Counters: ...
    def zero_copy(self, direction: Direction, index: int) -> bool: ...
    def route(self, direction: Direction, index: int) -> str: ...
    def allocate(self, direction: Direction, index: int, context: int = 0) -> npt.NDArray[Any]: ...
    def import_dmabuf(
        self, index: int, fd: int, offset: int = 0, context: int = 0
    ) -> npt.NDArray[Any]: ...
    def reshape(self, shape: Sequence[int]) -> None: ...
    def trim(self) -> None: ...
    def close(self, timeout: float) -> bool: ...

@final
class Ring:
    def __init__(self, executor: Executor, depth: int, probe: bool = True) -> None: ...
    @property
    def depth(self) -> int: ...
    @property
    def executor(self) -> Executor: ...
    def fileno(self) -> int: ...
    def try_acquire(self) -> Slot | None: ...
    def want_free(self) -> None: ...
    def drain(self) -> list[tuple[int, int, BaseException | None]]: ...
    def reshape(self, shape: Sequence[int]) -> None: ...
    def states(self) -> list[tuple[SlotState, int]]: ...
    def running(self, context: int) -> int: ...
    def close(self) -> None: ...

@final
class Slot:
    @property
    def index(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def state(self) -> SlotState: ...
    def input(self, index: int) -> npt.NDArray[Any]: ...
    def output(self, index: int) -> npt.NDArray[Any]: ...
    def submit(
        self,
        inputs: dict[int, npt.NDArray[Any]] | None = None,
        outputs: dict[int, npt.NDArray[Any]] | None = None,
    ) -> tuple[tuple[Route, ...], tuple[Route, ...]]: ...
    def copy_output(self, index: int, target: npt.NDArray[Any]) -> None: ...
    def submit_resized(
        self,
        resizer: Resizer,
        frame: npt.NDArray[np.uint8],
        top: int,
        left: int,
        pad: int | None = None,
    ) -> None: ...
    def lease(self) -> tuple[int, int, int]: ...
    def release(self) -> None: ...

def simulated(
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    *,
    contexts: int = 1,
    cores: int = 0,
    latency_us: float = 0.0,
    jitter_us: float = 0.0,
    distribution: Literal["fixed", "uniform", "normal", "exponential"] = "fixed",
    seed: int = 0,
    fail_runs: Sequence[int] = (),
    hang_runs: Sequence[int] = (),
    hang_seconds: float = ...,
    refuse_allocation: int = -1,
) -> Engine: ...
def openvino(
    library: str,
    model: str | bytes,
    device: str,
    *,
    contexts: int = 1,
    input_shape: Sequence[int] | None = None,
    image_input: bool = True,
    swap_rb: bool = False,
    mean: Sequence[float] = (),
    scale: Sequence[float] = (),
    properties: dict[str, str] | None = None,
) -> Engine: ...
def openvino_devices(library: str) -> tuple[str, list[tuple[str, str]]]: ...
def rknn(
    library: str,
    model: str | bytes,
    *,
    contexts: int | None = None,
    cores: Sequence[int] = (),
    mode: Literal["zero_copy", "general"] = "zero_copy",
    binding: Literal["context_per_slot", "rebind", "auto"] = "context_per_slot",
    priority: Literal["high", "medium", "low"] = "high",
    raise_priority: bool = False,
    image_input: bool = True,
    dequantize: bool = True,
    explicit_sync: bool = False,
    input_shape: Sequence[int] | None = None,
) -> Engine: ...
def rknn_check_library(library: str) -> None: ...
def mindspore_lite(
    library: str,
    model: str | bytes,
    device: str,
    *,
    contexts: int = 1,
    input_shape: Sequence[int] | None = None,
    image_input: bool = True,
    swap_rb: bool = False,
    mean: Sequence[float] = (),
    scale: Sequence[float] = (),
    threads: int = 0,
    affinity: int = 0,
    cores: Sequence[int] = (),
    fp16: bool = False,
    performance: int = 0,
    priority: int = 0,
    frequency: int = 0,
    cpu_fallback: bool = True,
    extensions: dict[str, str] = ...,
) -> Engine: ...
def mindspore_lite_devices(library: str) -> tuple[str, list[tuple[str, str]]]: ...
def nnrt(
    library: str,
    model: str | bytes,
    device: str,
    *,
    contexts: int = 1,
    input_shape: Sequence[int] | None = None,
    image_input: bool = True,
    swap_rb: bool = False,
    mean: Sequence[float] = (),
    scale: Sequence[float] = (),
    inputs: Sequence[TensorSpec] = (),
    outputs: Sequence[TensorSpec] = (),
    cache_dir: str = "",
    cache_version: int = 0,
    performance: int | None = None,
    priority: int | None = None,
    float16: bool | None = None,
    idle_seconds: float = 600.0,
) -> Engine: ...
def nnrt_devices(library: str) -> tuple[str, list[tuple[str, str]]]: ...
