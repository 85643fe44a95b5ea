"""The stand-in for NNRT: its libraries, its model files, and what its network computes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tests.standins import build_library

__all__ = [
    "WEIGHTS",
    "StandInTensor",
    "expected",
    "library",
    "options",
    "statistics",
    "write_model",
]

_FOLDER = "tests/vendor/nnrt"
_SHARED = [f"{_FOLDER}/{name}.cpp" for name in ("state", "model", "core")]
WEIGHTS = (3, 1, 4, 1, 5)


class StandInTensor(NamedTuple):
    """An input or output of a model of the stand-in."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: str = ""


def library(version: str) -> Path:
    """The runtime's library with the calls of API 11 (``v2``) or of API 9 (``v1``)."""
    folder = f"nnrt-{version}"
    name = "libneural_network_runtime.so"
    memory = f"{_FOLDER}/memory.cpp"
    if version == "v1":
        return build_library(name, [*_SHARED, memory], folder=folder, defines=["STANDIN_NNRT_V1"])
    core = build_library(
        "libneural_network_core.so", [*_SHARED, f"{_FOLDER}/tensors.cpp"], folder=folder
    )
    return build_library(name, [memory], folder=folder, needs=[core])


def write_model(
    path: Path, inputs: Sequence[StandInTensor], outputs: Sequence[StandInTensor]
) -> Path:
    """Write an offline model with ``WEIGHTS``."""
    lines = ["standin-nnrt 1", " ".join(map(str, ("weights", *WEIGHTS)))]
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors:
            words = (kind, tensor.name, tensor.dtype, tensor.layout or "NONE", *tensor.shape)
            lines.append(" ".join(map(str, words)))
    path.write_text("\n".join(lines) + "\n")
    return path


def options(
    version: str, inputs: Sequence[StandInTensor], outputs: Sequence[StandInTensor]
) -> dict[str, Any]:
    """``model.options`` that this version needs for such a model."""
    if version == "v2":
        return {}
    both = (("inputs", inputs), ("outputs", outputs))
    return {name: [_declared(tensor) for tensor in tensors] for name, tensors in both}


def _declared(tensor: StandInTensor) -> dict[str, Any]:
    return {**tensor._asdict(), "shape": list(tensor.shape)}


def expected(
    arrays: Sequence[npt.NDArray[Any]], output: StandInTensor, index: int = 0
) -> npt.NDArray[Any]:
    """What output ``index`` holds after a run on ``arrays``, by NumPy."""
    data = np.concatenate([np.ascontiguousarray(array).reshape(-1).view("u1") for array in arrays])
    count = math.prod(output.shape)
    rows = -(-len(data) // count)
    padded = np.zeros(rows * count, np.uint32)
    padded[: len(data)] = data
    weights = np.resize(np.array(WEIGHTS, np.uint32), rows)
    sums = weights @ padded.reshape(rows, count) + np.uint32(index)
    if output.dtype == "float16":
        sums %= np.uint32(2048)
    elif output.dtype == "bool":
        sums &= np.uint32(1)
    return sums.astype(output.dtype).reshape(output.shape)


_FIELDS = (
    "runs", "allocations", "frees", "live_blocks", "live_bytes", "leaked_blocks",
    "live_executors", "live_compilations", "live_descriptions", "descriptions", "binds",
    "largest_waste", "misuses",
)  # fmt: skip


def statistics(version: str) -> dict[str, int]:
    """What the driver counted in this process."""
    loaded = ctypes.CDLL(str(library(version)))
    values = (ctypes.c_uint64 * len(_FIELDS))()
    loaded.standin_nnrt_stats(ctypes.byref(values))
    return dict(zip(_FIELDS, values, strict=True))


def reset(version: str) -> None:
    """Counters to zero, and the switches read anew from the environment."""
    ctypes.CDLL(str(library(version))).standin_nnrt_reset()


def release(version: str) -> None:
    """Let a run go on that the switch HOLD_RUNS holds."""
    ctypes.CDLL(str(library(version))).standin_nnrt_release()
