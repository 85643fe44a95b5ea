"""Models for the stand-in librknnrt.so, each with tensors of another kind.

python make_model.py centerface out.rknn --size 320
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rknn_model import Input, Model, Output, Shape

__all__ = ["PRESETS", "Input", "Model", "Output", "main"]


def _image(*shapes: Shape, name: str = "images", **changes: Any) -> Input:
    made = Input(name, shapes, scale=1 / 255, zp=-128, mean=(0.0,) * 3, std=(255.0,) * 3)
    return replace(made, **changes)


def _scaled(output: Output, window: int, gain: float = 1.0) -> Output:
    """Such that its real values spread over what its type can hold."""
    return replace(output, mult=gain * output.step / (window * 60.0))


def tiny(size: int | None = None) -> Model:
    """One small image, one int8 output in blocks of 16 channels."""
    size = size or 32
    out = Output("scores", ((1, 5, size // 4, size // 4),), scale=0.05, zp=3)
    return Model((_image((1, 3, size, size)),), (_scaled(out, 16),), custom="a tiny model")


def yolo(size: int | None = None) -> Model:
    """Three int8 planes whose buffers are larger than their elements, as on the RK3588."""
    size = size or 640
    outputs = []
    for stride in (8, 16, 32):
        side = size // stride
        out = Output(f"plane{stride}", ((1, 255, side, side),), scale=0.1, zp=-5)
        outputs.append(_scaled(replace(out, w_align=16), stride * stride))
    return Model((_image((1, 3, size, size)),), tuple(outputs))


def centerface(size: int | None = None) -> Model:
    """The tensors of CenterFace, whose decoder then finds boxes that mean nothing."""
    size = size or 320
    side = size // 4
    names = {"heatmap": 1, "scale": 2, "offset": 2, "landmarks": 10}
    outputs = tuple(
        _scaled(Output(name, ((1, count, side, side),), scale=1 / 256, zp=-128), 16)
        for name, count in names.items()
    )
    return Model((_image((1, 3, size, size), name="input.1"),), outputs)


def mixed(size: int | None = None) -> Model:
    """An image and a vector; outputs of every type and layout."""
    size = size or 32
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


def wide(size: int | None = None) -> Model:
    """An input of 20 channels, which the device holds in blocks of 16."""
    size = size or 16
    features = Input("features", ((1, 20, size, size),), scale=0.1, zp=2, w_align=1)
    out = Output("scores", ((1, 4, size, size),), scale=0.1, zp=0)
    return Model((features,), (_scaled(out, 1),))


def half(size: int | None = None) -> Model:
    """A model of float16 throughout."""
    size = size or 32
    image = _image((1, 3, size, size), type="float16", qnt="none", scale=1 / 256, zp=0)
    out = Output("scores", ((1, 5, size // 4, size // 4),), type="float16", qnt="none", c2=8)
    return Model((image,), (_scaled(out, 16),))


def dynamic(size: int | None = None) -> Model:
    """An image of three sizes, the largest first."""
    size = size or 64
    sides = (size, size // 2, size // 4)
    out = Output("scores", tuple((1, 5, s // 4, s // 4) for s in sides), scale=0.05, zp=3)
    return Model((_image(*((1, 3, s, s) for s in sides)),), (_scaled(out, 16),))


# By name; each is made for the side of its square image, or None for its usual one.
PRESETS: dict[str, Callable[[int | None], Model]] = {
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
    model = PRESETS[chosen.preset](chosen.size)
    if chosen.platform:
        model = replace(model, platforms=tuple(chosen.platform))
    replace(model, run_us=chosen.run_us).save(chosen.path)


if __name__ == "__main__":
    main()
