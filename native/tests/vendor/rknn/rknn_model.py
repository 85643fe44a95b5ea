"""A model for the stand-in librknnrt.so, and what its network computes, with numpy.

`Model.run` defines the network: every other implementation must give the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Input", "Model", "Output", "Shape"]

Array = NDArray[Any]
Shape = tuple[int, ...]

VERSION = 6
HEAD_BYTES = 64
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "float16": (-32768, 32767)}
RANGES["float32"] = RANGES["float16"]


def _rounded(values: Array) -> Array:
    """To the nearest whole number, halves away from zero."""
    result: Array = np.trunc(values + np.copysign(0.5, values))
    return result


@dataclass(frozen=True)
class _Tensor:
    name: str
    shapes: tuple[Shape, ...]  # NCHW where 4-D; more than one for a dynamic model
    type: str = "int8"  # int8, uint8, float16, float32
    qnt: str = "affine"  # affine (scale, zp), dfp (fl) or none
    scale: float = 1.0
    zp: int = 0
    fl: int = 0
    native: str = ""  # nchw, nhwc, nc1hwc2 or undefined; empty: what the vendor's runtime has
    c2: int = 16
    w_align: int = 1
    h_align: int = 1
    extra: int = 0  # bytes that a buffer must have beyond its elements

    @property
    def step(self) -> float:
        """The real value of one quantum."""
        return float(2.0**-self.fl) if self.qnt == "dfp" else float(np.float32(self.scale))

    @property
    def zero(self) -> int:
        return self.zp if self.qnt == "affine" else 0

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.type)

    def quantised(self, values: Array) -> Array:
        """Real values as quanta in float64, with the zero point."""
        low, high = RANGES[self.type]
        result: Array = np.clip(_rounded(values / self.step) + self.zero, low, high)
        return result

    def channels(self) -> int:
        shape = self.shapes[0]
        return shape[1] if len(shape) == 4 else int(np.prod(shape[1:]))

    def planes(self, values: Array, shape: int) -> Array:
        """As (N, C, H, W), where tensors that are not 4-D have all in C."""
        dims = self.shapes[shape]
        return values.reshape(dims if len(dims) == 4 else (dims[0], -1, 1, 1))

    def line(self, kind: str, default: str, **more: str) -> str:
        native = self.native or (default if len(self.shapes[0]) == 4 else "undefined")
        fields = {
            "name": self.name,
            "dims": "|".join(",".join(map(str, shape)) for shape in self.shapes),
            "type": self.type,
            "qnt": self.qnt,
            "scale": repr(float(np.float32(self.scale))),
            "zp": str(self.zp),
            "fl": str(self.fl),
            "native": native,
            "c2": str(self.c2),
            "w_align": str(self.w_align),
            "h_align": str(self.h_align),
            "extra": str(self.extra),
            **more,
        }
        return kind + "".join(f" {key}={value}" for key, value in fields.items())


@dataclass(frozen=True)
class Input(_Tensor):
    """An input. A byte of an image stands for the real value `(byte - mean) / std`."""

    w_align: int = 16
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def quanta(self, values: Array, shape: int) -> Array:
        """What the network's first layer sees of NCHW values: whole numbers around zero.

        Values of the tensor's own type are its raw content, others are real and get normalised.
        """
        data = self.planes(np.asarray(values), shape)
        if data.dtype == self.dtype:
            if self.qnt != "none":
                return data.astype(np.int64) - self.zero
            return self.quantised(data.astype(np.float64)).astype(np.int64)
        channels = self.channels()
        mean = np.array(self.mean or (0.0,) * channels).reshape(1, -1, 1, 1)
        std = np.array(self.std or (1.0,) * channels).reshape(1, -1, 1, 1)
        real = (data.astype(np.float64) - mean) / std
        if self.qnt == "none":
            real = real.astype(np.float32).astype(self.dtype).astype(np.float64)
        return self.quantised(real).astype(np.int64) - self.zero

    def text(self) -> str:
        image = self.channels() in (1, 3, 4)
        more = {}
        if self.mean:
            more["mean"] = ",".join(map(repr, map(float, self.mean)))
        if self.std:
            more["std"] = ",".join(map(repr, map(float, self.std)))
        return self.line("input", "nhwc" if image else "nc1hwc2", **more)


@dataclass(frozen=True)
class Output(_Tensor):
    """An output: its real value is the network's whole number times `mult`."""

    mult: float = 1.0

    def text(self) -> str:
        return self.line("output", "nc1hwc2", mult=repr(float(self.mult)))

    def store(self, sums: Array, shape: int) -> Array:
        """The network's whole numbers as raw content of the logical shape."""
        values = sums.astype(np.float64) * self.mult
        if self.qnt != "none":
            raw = self.quantised(values).astype(self.dtype)
        else:
            raw = values.astype(np.float32).astype(self.dtype)
        return raw.reshape(self.shapes[shape])

    def real(self, raw: Array) -> Array:
        """Raw content as float32."""
        if self.qnt == "none":
            return raw.astype(np.float32)
        whole: Array = (raw.astype(np.int32) - self.zero).astype(np.float32)
        return whole * np.float32(self.step)


@dataclass(frozen=True)
class Model:
    """A model with weights made of `seed`."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    platforms: tuple[str, ...] = ("rk3588", "rk3576")
    run_us: int = 0
    custom: str = ""
    version: int = VERSION
    seed: int = 0
    weights: tuple[tuple[Array, Array], ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        total = sum(tensor.channels() for tensor in self.inputs)
        made = []
        for output in self.outputs:
            factors = rng.integers(-100, 101, (output.channels(), total), np.int8)
            made.append((factors, rng.integers(-1000, 1001, output.channels(), np.int32)))
        object.__setattr__(self, "weights", tuple(made))

    def to_bytes(self) -> bytes:
        lines = [f"model run_us={self.run_us}"]
        if self.platforms:
            lines.append("platform " + " ".join(self.platforms))
        if self.custom:
            lines.append("custom " + self.custom)
        lines += [tensor.text() for tensor in self.inputs]
        lines += [tensor.text() for tensor in self.outputs]
        text = ("\n".join(lines) + "\n").encode()
        blob = b"".join(
            factors.tobytes() + bias.astype("<i4").tobytes() for factors, bias in self.weights
        )
        head = struct.pack("<4sIIIQQ", b"RKNN", 0, self.version, 0, len(text), len(blob))
        return head.ljust(HEAD_BYTES, b"\0") + text + blob

    def save(self, path: Path) -> Path:
        path.write_bytes(self.to_bytes())
        return path

    def run(self, values: Sequence[Array], shape: int = 0) -> list[Array]:
        """The raw outputs, in logical shape, of NCHW inputs: uint8 images or raw content."""
        quanta = [t.quanta(v, shape) for t, v in zip(self.inputs, values, strict=True)]
        results = []
        for output, (factors, bias) in zip(self.outputs, self.weights, strict=True):
            dims = output.shapes[shape]
            height, width = dims[2:] if len(dims) == 4 else (1, 1)
            pooled = np.concatenate([_windows(q, height, width) for q in quanta], axis=1)
            sums = np.einsum("ck,nkhw->nchw", factors.astype(np.int64), pooled)
            results.append(output.store(sums + bias.reshape(1, -1, 1, 1), shape))
        return results

    def real(self, raw: Sequence[Array]) -> list[Array]:
        return [tensor.real(array) for tensor, array in zip(self.outputs, raw, strict=True)]


def _windows(quanta: Array, height: int, width: int) -> Array:
    """Sums of each window; a single value counts in every one as it is."""
    n, c, h, w = quanta.shape
    if (h, w) == (1, 1):
        return np.broadcast_to(quanta, (n, c, height, width))
    parts: Array = quanta.reshape(n, c, height, h // height, width, w // width)
    sums: Array = parts.sum(axis=(3, 5))
    return sums
