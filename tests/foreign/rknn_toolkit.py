"""Converts the demo's model with Rockchip's toolkit and compares its simulator with OpenVINO.

    python tests/foreign/rknn_toolkit.py --toolkit-python PYTHON [--frames N] [--keep FOLDER]

PYTHON is that of an environment with `rknn-toolkit2==2.5.0`, which is no dependency; this program
runs in the project's own, with its extra "demo". Each frame of the demo's clip goes through the
demo's pipeline; the very frames that its model saw then go through the toolkit's simulator of an
RK3588, once with the float16 model and once quantised to int8, calibrated with a few of them.
Printed is how far the outputs and the faces of each are from those of OpenVINO in float32. --keep
leaves the converted models, the frames and all outputs in a folder.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pipeline.contracts import FrameMapping
    from pipeline.memory.results import Detections

__all__ = ["main"]

ROOT = Path(__file__).parents[2]
CHIP = "rk3588"
KINDS = ("float16", "int8")
CALIBRATION = 12  # frames, at equal distances in the clip
SAME_FACE = 0.5  # least intersection over union
Array = npt.NDArray[Any]


# What runs in the toolkit's environment, which has neither this package nor its numpy.


def convert(folder: Path, model: str, kind: str) -> None:
    """Make the .rknn file of one kind, and write what the simulator makes of the frames."""
    from rknn.api import RKNN

    images = np.load(folder / "frames.npy")
    _, height, width, channels = images.shape
    calibration = []
    for number in np.linspace(0, len(images) - 1, CALIBRATION).astype(int):
        path = folder / f"calibration{number}.npy"
        np.save(path, images[number].transpose(2, 0, 1)[None])  # the toolkit wants NCHW here
        calibration.append(f"{path}\n")
    (folder / "calibration.txt").write_text("".join(calibration))
    toolkit = RKNN(verbose=False)
    # The model takes bytes as they are. Its file declares [10, 3, 32, 32], which is of no use.
    toolkit.config(
        mean_values=[[0.0] * channels], std_values=[[1.0] * channels], target_platform=CHIP
    )
    steps: dict[str, Callable[[], int]] = {
        "load the model": lambda: toolkit.load_onnx(
            model=model, inputs=["input.1"], input_size_list=[[1, channels, height, width]]
        ),
        "build it": lambda: toolkit.build(
            do_quantization=kind == "int8", dataset=str(folder / "calibration.txt")
        ),
        "export it": lambda: toolkit.export_rknn(str(folder / f"{kind}.rknn")),
        "start the simulator": lambda: toolkit.init_runtime(),
    }
    for name, step in steps.items():
        if (code := step()) != 0:
            raise SystemExit(f"{kind}: the toolkit could not {name}: {code}")
    runs = [toolkit.inference(inputs=[one[None]], data_format=["nhwc"]) for one in images]
    np.savez(folder / f"{kind}.npz", *map(np.concatenate, zip(*runs, strict=True)))


# What runs in the project's environment.


class Played(NamedTuple):
    """A clip as the model saw it, and what was made of it."""

    images: Array  # (N, H, W, 3) in the model's order of colors
    outputs: list[Array]  # one for each output, (N, C, H, W)
    names: list[str]
    mapping: FrameMapping


def play(frames: int | None, precision: str | None) -> Played:
    """The demo with its outputs kept. A precision of None is what OpenVINO chooses itself."""
    from pipeline import Pipeline, _native
    from pipeline.memory.frame import FrameFormat
    from pipeline.preprocess.preprocessor import Preprocessor

    overrides = ["postprocess={kind: raw}", "sinks=[]"]
    if precision is not None:
        overrides.append(f"model.options={{inference_precision: {precision}}}")
    pipeline = Pipeline.from_yaml(ROOT / "configs/demo.yaml", overrides, max_frames=frames)
    _, channels, height, width = pipeline.config.model.input_shape or ()
    spec = _native.TensorSpec("frame", "uint8", [1, height, width, channels], "NHWC")
    preprocessor = Preprocessor(pipeline.config.preprocess, swap_colors=True)
    images: list[Array] = []
    outputs: list[list[Array]] = []
    names: list[str] = []

    async def run() -> None:
        async with pipeline:
            async for result in pipeline:
                assert result.image is not None
                if not images:
                    rows, columns, _ = result.image.shape
                    preprocessor.open(FrameFormat(columns, rows), spec)
                image = np.empty((1, height, width, channels), np.uint8)
                preprocessor.process(result.image, image, len(images))
                images.append(image)
                outputs.append([output.array.copy() for output in result.outputs])
                names[:] = [output.name for output in result.outputs]

    asyncio.run(run())
    tensors = [np.concatenate(arrays) for arrays in zip(*outputs, strict=True)]
    return Played(np.concatenate(images), tensors, names, preprocessor.mapping)


def faces(played: Played, outputs: Sequence[Array]) -> list[Detections]:
    """Each frame's faces, by the demo's own decoder and threshold."""
    from pipeline import _native
    from pipeline.config.loading import load
    from pipeline.postprocess import make_postprocess

    decoder = make_postprocess(load(ROOT / "configs/demo.yaml").postprocess)
    shape = [1, *played.images.shape[1:]]
    decoder.open(
        [_native.TensorSpec("frame", "uint8", shape, "NHWC")],
        [
            _native.TensorSpec(name, "float32", [1, *array.shape[1:]], "NCHW")
            for name, array in zip(played.names, outputs, strict=True)
        ],
    )
    return [
        decoder.process([array[number : number + 1] for array in outputs], played.mapping)
        for number in range(len(played.images))
    ]


def overlap(one: Array, others: Array) -> Array:
    """Intersection over union of a box with each of others."""
    sides = np.minimum(one[2:], others[:, 2:]) - np.maximum(one[:2], others[:, :2])
    common: Array = sides.clip(0).prod(axis=1)
    sizes = (others[:, 2:] - others[:, :2]).prod(axis=1)
    return np.asarray(common / ((one[2:] - one[:2]).prod() + sizes - common))


def compare(wanted: list[Detections], got: list[Detections]) -> list[str]:
    """How many faces both have, and how far apart those are, as cells of a table."""
    found: list[tuple[float, float, float]] = []
    for want, have in zip(wanted, got, strict=True):
        free = np.ones(len(have), bool)
        for face in want:
            ious = np.where(free, overlap(face.box, have.boxes), 0)
            if not ious.size or ious.max() < SAME_FACE:
                continue
            best = int(ious.argmax())
            free[best] = False
            apart = np.linalg.norm(face.landmarks - have.landmarks[best], axis=1).max()
            score = abs(face.score - float(have.scores[best]))
            found.append((float(ious.max()), score, float(apart)))
    counts = f"{len(found)} of {sum(map(len, wanted))}, {sum(map(len, got)) - len(found)} others"
    if not found:
        return [counts, "", "", ""]
    ious, scores, points = np.array(found).T
    return [
        counts,
        f"{ious.mean():.3f} ({ious.min():.3f})",
        f"{scores.mean():.4f} ({scores.max():.4f})",
        f"{points.mean():.2f} ({points.max():.2f})",
    ]


def differences(wanted: Array, got: Array) -> list[str]:
    """Of all values of an output, as cells of a table."""
    one, other = wanted.ravel().astype(np.float64), got.ravel().astype(np.float64)
    apart = np.abs(one - other)
    cosine = one @ other / np.sqrt((one @ one) * (other @ other))
    return [f"{apart.mean():.5f}", f"{apart.max():.4f}", f"{cosine:.6f}"]


def show(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Markdown table."""
    for row in (head, ["---"] * len(head), *rows):
        sys.stdout.write(f"| {' | '.join(row)} |\n")
    sys.stdout.write("\n")


def simulate(folder: Path, python: str, kind: str) -> list[Array]:
    """Outputs of the toolkit, which works in a process and an environment of its own."""
    from pipeline.config.loading import load

    model = str(load(ROOT / "configs/demo.yaml").model.path)
    command = [python, __file__, "--convert", kind, "--model", model, "--keep", str(folder)]
    with open(folder / f"{kind}.log", "w+") as log:
        if subprocess.run(command, stdout=log, stderr=log, check=False).returncode != 0:
            log.seek(0)
            raise SystemExit(log.read())
    made = (folder / f"{kind}.rknn").read_bytes()
    sys.stdout.write(f"{kind}.rknn: {len(made)} bytes, {made[:4]!r}, version {made[8]}\n")
    arrays = np.load(folder / f"{kind}.npz")
    return [arrays[name] for name in arrays.files]


def work(folder: Path, chosen: argparse.Namespace) -> None:
    """Play, convert, simulate, and print two tables."""
    reference = play(chosen.frames, "f32")
    np.save(folder / "frames.npy", reference.images)
    sides = {"OpenVINO, its own precision": play(chosen.frames, None).outputs}
    for kind in KINDS:
        sides[f"simulator, {kind}"] = simulate(folder, chosen.toolkit_python, kind)
    show(
        ["side", "output", "mean difference", "largest", "cosine"],
        [
            [side, f"`{name}`", *differences(want, have)]
            for side, outputs in sides.items()
            for name, want, have in zip(reference.names, reference.outputs, outputs, strict=True)
        ],
    )
    wanted = faces(reference, reference.outputs)
    show(
        ["side", "same faces", "overlap, mean (least)", "score, mean (most)", "landmark, px"],
        [[side, *compare(wanted, faces(reference, outputs))] for side, outputs in sides.items()],
    )


def main() -> None:
    """Compare, or with --convert do one conversion."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--toolkit-python", help="Python of an environment with rknn-toolkit2")
    parser.add_argument("--frames", type=int, help="of the clip; by default all")
    parser.add_argument("--keep", type=Path, help="folder for models, frames and outputs")
    parser.add_argument("--convert", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.convert:
        convert(chosen.keep, chosen.model, chosen.convert)
    elif not chosen.toolkit_python:
        parser.error("--toolkit-python is missing")
    elif chosen.keep:
        chosen.keep.mkdir(parents=True, exist_ok=True)
        work(chosen.keep.resolve(), chosen)
    else:
        with tempfile.TemporaryDirectory() as folder:
            work(Path(folder), chosen)


if __name__ == "__main__":
    main()
