"""Models for the stand-in librknnrt.so, and what its network computes of them, with numpy.

    python make_model.py centerface out.rknn --size 320

`Model.run` defines the network: every other implementation must give the same bytes.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PRESETS", "Input", "Model", "Output", "main"]

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


def _image(*shapes: Shape, name: str = "images", **changes: Any) -> Input:
    made = Input(name, shapes, scale=1 / 255, zp=-128, mean=(0.0,) * 3, std=(255.0,) * 3)
    return replace(made, **changes)


def _scaled(output: Output, window: int, gain: float = 1.0) -> Output:
    """Such that its real values spread over what its type can hold."""
    return replace(output, mult=gain * output.step / (window * 60.0))


def tiny(size: int = 32) -> Model:
    """One small image, one int8 output in blocks of 16 channels."""
    out = Output("scores", ((1, 5, size // 4, size // 4),), scale=0.05, zp=3)
    return Model((_image((1, 3, size, size)),), (_scaled(out, 16),), custom="a tiny model")


def yolo(size: int = 640, channels: int = 255) -> Model:
    """Three int8 planes whose buffers are larger than their elements, as on the RK3588."""
    outputs = []
    for stride in (8, 16, 32):
        side = size // stride
        out = Output(f"plane{stride}", ((1, channels, side, side),), scale=0.1, zp=-5)
        outputs.append(_scaled(replace(out, w_align=16), stride * stride))
    return Model((_image((1, 3, size, size)),), tuple(outputs))


def centerface(size: int = 320) -> Model:
    """The tensors of CenterFace, whose decoder then finds boxes that mean nothing."""
    side = size // 4
    names = {"heatmap": 1, "scale": 2, "offset": 2, "landmarks": 10}
    outputs = tuple(
        _scaled(Output(name, ((1, count, side, side),), scale=1 / 256, zp=-128), 16)
        for name, count in names.items()
    )
    return Model((_image((1, 3, size, size), name="input.1"),), outputs)


def mixed(size: int = 32) -> Model:
    """An image and a vector; outputs of every type and layout."""
    side = size // 4
    square = (1, 6, side, side)
    outputs = (
        Output("blocks", ((1, 20, side, side),), scale=0.03, zp=-7),
        Output("rows", (square,), native="nhwc", scale=0.02, zp=9, w_align=16),
        Output("planes", (square,), native="nchw", qnt="dfp", fl=4),
        Output("bytes", ((1, 9),), type="uint8", scale=0.5, zp=100),
        Output("halves", ((1, 12, side, side),), type="float16", qnt="none", c2=8),
        Output("floats", ((1, 7),), type="float32", qnt="none"),
    )
    vector = Input("vector", ((1, 10),), scale=0.125, zp=4)
    return Model(
        (_image((1, 3, size, size)), vector),
        tuple(_scaled(out, size * size if len(out.shapes[0]) == 2 else 16) for out in outputs),
    )


def wide(size: int = 16) -> Model:
    """An input of 20 channels, which the device holds in blocks of 16."""
    features = Input("features", ((1, 20, size, size),), scale=0.1, zp=2, w_align=1)
    out = Output("scores", ((1, 4, size, size),), scale=0.1, zp=0)
    return Model((features,), (_scaled(out, 1),))


def half(size: int = 32) -> Model:
    """A model of float16 throughout."""
    image = _image((1, 3, size, size), type="float16", qnt="none", scale=1 / 256, zp=0)
    out = Output("scores", ((1, 5, size // 4, size // 4),), type="float16", qnt="none", c2=8)
    return Model((image,), (_scaled(out, 16),))


def dynamic(size: int = 64) -> Model:
    """An image of three sizes, the largest first."""
    sides = (size, size // 2, size // 4)
    out = Output("scores", tuple((1, 5, s // 4, s // 4) for s in sides), scale=0.05, zp=3)
    return Model((_image(*((1, 3, s, s) for s in sides)),), (_scaled(out, 16),))


PRESETS: dict[str, Callable[[int], Model]] = {
    "tiny": tiny,
    "yolo": yolo,
    "centerface": centerface,
    "mixed": mixed,
    "wide": wide,
    "half": half,
    "dynamic": dynamic,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write one of the presets to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("preset", choices=PRESETS)
    parser.add_argument("path", type=Path)
    parser.add_argument("--size", type=int, help="pixels of the square image")
    parser.add_argument("--run-us", type=int, default=0, help="microseconds that a run takes")
    parser.add_argument("--platform", action="append", help="chip that it runs on (repeatable)")
    chosen = parser.parse_args(arguments)
    make: Callable[..., Model] = PRESETS[chosen.preset]
    model = make(chosen.size) if chosen.size else make()
    if chosen.platform:
        model = replace(model, platforms=tuple(chosen.platform))
    replace(model, run_us=chosen.run_us).save(chosen.path)


if __name__ == "__main__":
    main()
