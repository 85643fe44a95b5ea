"""The stand-in for MindSpore Lite: its libraries, its models, and what its network computes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tests.standins import build_library

__all__ = ["Family", "StandInTensor", "count", "expected", "library", "reset", "write_model"]

_FOLDER = "tests/vendor/mindspore_lite"
_SOURCES = [f"{_FOLDER}/{name}.cpp" for name in ("memory", "network", "standin")]

Family = Literal["OH_AI", "MS"]


class StandInTensor(NamedTuple):
    """An input or output of a model of the stand-in."""

    name: str
    dtype: str  # uint8, int32, int64 or float32
    shape: tuple[int, ...]
    layout: str = "NCHW"


def library(family: Family) -> Path:
    """The library as on OpenHarmony (``OH_AI``) or as on other systems (``MS``)."""
    if family == "OH_AI":
        return build_library("libmindspore_lite_ndk.so", _SOURCES, defines=["STANDIN_OH"])
    return build_library("libmindspore-lite.so", _SOURCES)


def write_model(
    path: Path, inputs: Sequence[StandInTensor], outputs: Sequence[StandInTensor]
) -> Path:
    """Write a model; an extent of -1 is open."""
    lines = ["mindspore-lite-standin"]
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors:
            words = (kind, tensor.name, tensor.dtype, tensor.layout, *tensor.shape)
            lines.append(" ".join(map(str, words)))
    path.write_text("\n".join(lines) + "\n")
    return path


def expected(
    arrays: Sequence[npt.NDArray[Any]], output: StandInTensor, index: int = 0
) -> npt.NDArray[Any]:
    """What output ``index`` holds after a run on ``arrays``, of the model's own types."""
    size = math.prod(output.shape)
    sums = np.full(size, index + 1, np.float64)
    for number, array in enumerate(arrays):
        values = np.ascontiguousarray(array).reshape(-1).astype(np.float64)
        padded = np.zeros(-(-len(values) // size) * size)
        padded[: len(values)] = values
        sums += (number + 1) * padded.reshape(-1, size).sum(axis=0)
    if np.dtype(output.dtype).kind != "f":
        sums = sums.astype(np.int64)
    return sums.astype(output.dtype).reshape(output.shape)


def count(family: Family, name: str) -> int:
    """A figure of the stand-in in this process, for example ``violations``."""
    function = ctypes.CDLL(str(library(family))).standin_mslite_count
    function.restype = ctypes.c_int64
    return int(function(name.encode()))


def reset(family: Family) -> None:
    """Figures to zero, but for what is alive."""
    ctypes.CDLL(str(library(family))).standin_mslite_reset()
