"""What OpenVINO does to tensors of each type, and what is reported of it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import Executor, ModelError

# In a process of its own, as OpenVINO's Python package is not to be loaded beside ours.
MODEL = """
import sys
import openvino as ov
from openvino import opset13 as ops

path, kind, name = sys.argv[1:]
parameter = ops.parameter([1, 64], getattr(ov.Type, kind), name=name)
parameter.output(0).set_names({name})
model = ov.Model([ops.concat([parameter, parameter], 0)], [parameter])
ov.save_model(model, path, compress_to_fp16=False)
compiled = ov.Core().compile_model(path, "CPU")
graph = compiled.get_runtime_model()
inner = graph.inputs[0].get_target_inputs()
types = {target.get_node().rt_info["outputPrecisions"].astype(str) for target in inner}
print(graph.inputs[0].get_node().rt_info["outputPrecisions"].astype(str) in types)
print(compiled.get_property("INFERENCE_PRECISION_HINT").to_string())
"""
TYPES = ["f32", "i32", "u8", "i8", "i64", "u64", "u32", "i16", "u16", "f16", "f64", "boolean"]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="OpenVINO is not installed"
)


def _make_model(path: Path, kind: str, name: str = "x") -> list[str]:
    command = [sys.executable, "-c", MODEL, str(path), kind, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("kind", TYPES)
async def test_zero_copy_is_what_the_execution_graph_does(kind: str, tmp_path: Path) -> None:
    kept, precision = _make_model(tmp_path / "model.xml", kind)
    async with Executor.open(tmp_path / "model.xml", image=None) as executor, executor.ring(1):
        assert executor.zero_copy()["input 0 'x'"] == (kept == "True")
        converted = "converted by the engine, which has another type inside"
        assert (executor.routes()["input 0 'x'"] == converted) == (kept != "True")
        assert executor.notes()["precision"] == precision


async def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    model = folder / "model.xml"
    _make_model(model, "f32", "QQQQ")
    model.write_bytes(model.read_bytes().replace(b"QQQQ", b"Q\xff\xfeQ"))
    async with Executor.open(model, image=None) as executor:
        assert executor.inputs[0].name == "Q\ufffd\ufffdQ"
        assert "\ufffd" in repr(executor.inputs[0])


@pytest.mark.parametrize("more", range(4))
async def test_a_long_message_is_cut_between_characters(more: int, tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["ü" * 60] * 5, "a" * more)
    folder.mkdir(parents=True)
    _make_model(folder / "model.xml", "f32")
    (folder / "model.bin").unlink()
    text = (folder / "model.xml").read_text().replace('type="Concat"', f'type="{"ü" * 200}"')
    (folder / "model.xml").write_text(text)
    with pytest.raises(ModelError) as raised:
        await Executor.open(folder / "model.xml", image=None)
    assert "\ufffd" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.onnx", b"\x08\x08\x12\x07pytorch:\xff\x01\x0a"),
        ("empty.onnx", b""),
        ("other.xml", b"<net></net>"),
        ("other.xml", b"<html></html>"),
        ("wrong.xml", b'<?xml version="1.0"?>\n<net name="a" versio="11"><layers>'),
        ("noise.tflite", b"\x00" * 100),
        ("noise", bytes(range(256))),
    ],
)
def test_a_broken_model_is_one_line_of_ours(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "c.yaml").write_text(
        f'source: {{uri: "synthetic:"}}\nmodel: {{path: {name}}}\npostprocess: {{kind: raw}}\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "c.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert done.stderr.startswith("error: c.yaml: model.path: "), done.stderr
    assert done.stderr.count("\n") == 1
    assert f"{name}: not " in done.stderr
