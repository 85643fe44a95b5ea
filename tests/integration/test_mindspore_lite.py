"""Engine mindspore_lite from the command line, on the stand-ins for its library."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.sources.synthetic import synthetic_frame
from tests import mslite_standin
from tests.mslite_standin import Family, StandInTensor
from tests.standins import NoCompilerError

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pipeline._native") is None, reason="the native module is not built"
)

FRAMES = 20_000
WIDTH, HEIGHT = 64, 48
OUTPUTS = [StandInTensor("scores", "float32", (1, 6)), StandInTensor("map", "uint8", (1, 2, 3, 2))]
CONFIG = """\
source: {{uri: "synthetic:", width: {width}, height: {height}, frames: {frames}, overflow: block}}
model:
  path: model.ms
  engine: mindspore_lite
  library: {library}
  contexts: 2
  {more}
ring: {{depth: 4}}
preprocess: {{{preprocess}}}
postprocess: {{kind: raw}}
sinks: [{{kind: jsonl, path: out.jsonl, digest: true}}]
"""

Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(params=["OH_AI", "MS"])
def family(request: pytest.FixtureRequest) -> Family:
    found: Family = request.param
    try:
        mslite_standin.library(found)
    except NoCompilerError as error:
        pytest.skip(str(error))
    return found


@pytest.fixture
def start(tmp_path: Path, family: Family) -> Start:
    """Run the command line on a configuration made of CONFIG in a folder with model.ms."""
    _write_model(tmp_path, "float32")

    def run(
        *arguments: str,
        switches: dict[str, str] | None = None,
        config: Path = Path("camera.yaml"),
        env: dict[str, str] | None = None,
        **values: Any,
    ) -> Any:
        filled = {
            "width": WIDTH,
            "height": HEIGHT,
            "frames": 5,
            "library": mslite_standin.library(family),
            "more": "",
            "preprocess": "color: rgb, mean: [8], scale: [2]",
        } | values
        (tmp_path / "camera.yaml").write_text(CONFIG.format_map(filled))
        paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
        turned = {f"STANDIN_MSLITE_{name}": value for name, value in (switches or {}).items()}
        return subprocess.run(
            [sys.executable, "-m", "pipeline", str(config), *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **turned, **(env or {})},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return run


def _write_model(folder: Path, dtype: str) -> None:
    image = StandInTensor("image", dtype, (1, HEIGHT, WIDTH, 3), "NHWC")
    mslite_standin.write_model(folder / "model.ms", [image], OUTPUTS)


def _model_input(sequence: int, dtype: str) -> Any:
    frame = synthetic_frame(sequence, WIDTH, HEIGHT)
    if dtype == "uint8":
        return frame
    return (frame[..., ::-1].astype(np.float32) - np.float32(8)) / np.float32(2)


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    with (folder / "out.jsonl").open() as file:
        yield from map(json.loads, file)


def _check(folder: Path, dtype: str, frames: int) -> None:
    """Every line is there, in order, and every element of it is what NumPy computes."""
    told = 0
    for sequence, line in enumerate(_lines(folder)):
        assert line["sequence"] == sequence
        image = _model_input(sequence, dtype)
        for index, (tensor, output) in enumerate(zip(OUTPUTS, line["outputs"], strict=True)):
            wanted = mslite_standin.expected([image], tensor, index)
            assert output["name"] == tensor.name
            assert output["shape"] == list(tensor.shape)
            assert output["dtype"] == tensor.dtype
            assert output["sha256"] == hashlib.sha256(wanted.data).hexdigest(), sequence
        told += 1
    assert told == frames


def test_20000_frames_in_order_and_equal_to_numpy(start: Start, tmp_path: Path) -> None:
    ended = start("--quiet", "--summary", "s.json", frames=FRAMES)
    assert (ended.returncode, ended.stderr) == (0, "")  # no rule of the interface was broken
    summary = json.loads((tmp_path / "s.json").read_text())
    assert (summary["engine"], summary["device"]) == ("mindspore_lite", "CPU")
    assert summary["results"] == summary["frames"] == FRAMES
    assert sum(summary["dropped"].values()) == 0
    allocations = summary["driver_allocations"]
    assert allocations["at_start"] == allocations["at_end"] == 4 * (1 + len(OUTPUTS))
    _check(tmp_path, "float32", FRAMES)


def test_the_summary_tells_which_way_each_tensor_takes(
    start: Start, tmp_path: Path, family: Family
) -> None:
    def routes(**values: Any) -> list[str]:
        ended = start("--quiet", "--summary", "s.json", **values)
        assert (ended.returncode, ended.stderr) == (0, "")
        return list(json.loads((tmp_path / "s.json").read_text())["zero_copy"].values())

    shared = "zero-copy, memory of the model's allocator"
    external = "zero-copy, external memory of the model's output"
    copied = "copied by the engine"
    oh = family == "OH_AI"
    converted = "converted from uint8 into the model's own type"
    assert routes() == [converted, *[shared if oh else copied] * 2]
    _write_model(tmp_path, "uint8")  # taken as it is captured
    plain = {"preprocess": "color: bgr"}
    assert routes(**plain) == [
        shared if oh else "zero-copy, read in place",
        *[shared if oh else copied] * 2,
    ]
    _check(tmp_path, "uint8", 5)
    replaced = {"OUTPUTS": "replace"}
    assert routes(**plain, switches=replaced)[1:] == [external if oh else copied] * 2
    refused = {**replaced, "USER_DATA": "refuse"}
    assert routes(**plain, switches=refused)[1:] == [copied] * 2
    _check(tmp_path, "uint8", 5)


def failed(ended: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    """One clear line that names the place, and the exit code."""
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, ended.stderr
    for part in parts:
        assert part in errors[0]


@pytest.mark.parametrize(
    ("values", "code", "places"),
    [
        ({"library": "/nowhere/lib.so"}, 4, ["model.library: /nowhere/lib.so: no such library"]),
        ({"library": "libm.so.6"}, 4, ["model", "libm.so.6: the library has neither OH_AI_"]),
        ({"more": "device: TPU"}, 4, ["model", "device 'TPU' is absent"]),
        ({"more": "device: NNRT"}, 4, ["model", "device 'NNRT' is absent", "finds here: CPU"]),
        ({"more": "options: {threds: 2}"}, 2, ["model.options.threds"]),
        ({"more": "options: {threads: 0}"}, 2, ["model.options.threads"]),
        (
            {"more": "options: {priority: high}"},
            2,
            ["camera.yaml: model.options.priority: only for device NNRT"],
        ),
        ({"more": "input_shape: [1, 48, 64]"}, 4, ["input 0", "[1,48,64]"]),
        ({"preprocess": "mean: [1, 2]"}, 2, ["camera.yaml: preprocess.mean: 2 values", "'image'"]),
    ],
)
def test_mistakes_are_named_with_their_exit_code(
    start: Start, values: dict[str, Any], code: int, places: list[str]
) -> None:
    failed(start("--quiet", frames=50, **values), code, *places)


@pytest.mark.parametrize(
    ("more", "switches", "code", "place"),
    [
        ("device: NNRT\n  options: {extensions: {Nope: '1'}}", {"DEVICES": "9:big:3"}, 2,
         "camera.yaml: model.options.extensions: Nope = '1' is refused: PARAM_INVALID (0x"),
        ("options: {extensions: {CachePath: x}}", {}, 2,
         "camera.yaml: model.options.extensions: only for device NNRT"),
        ("", {"EXPIRED": "1"}, 4, "camera.yaml: model: input 0 'image': MindSpore Lite did not"),
        ("", {"LOST": "map"}, 4, "camera.yaml: ring.depth: output 1 'map': the allocator is null"),
    ],
)  # fmt: skip
def test_what_only_openharmony_s_library_refuses(
    start: Start, family: Family, more: str, switches: dict[str, str], code: int, place: str
) -> None:
    if family == "MS":
        pytest.skip("has neither NNRT nor allocators")
    failed(start("--quiet", more=more, switches=switches), code, place)


def test_the_shipped_configuration(tmp_path: Path, start: Start, family: Family) -> None:
    def run(library: str) -> subprocess.CompletedProcess[str]:
        return start(
            "--frames", "5", "--quiet", "--set", f"sinks=[{{kind: jsonl, path: {tmp_path}/o}}]",
            "--set", "postprocess={kind: raw}", config=ROOT / "configs" / "mindspore_lite.yaml",
            env={"MODEL": str(tmp_path / "model.ms"), "SOURCE": "synthetic:", "LIBRARY": library},
        )  # fmt: skip

    ended = run(str(mslite_standin.library(family)))
    assert (ended.returncode, ended.stderr) == (0, "")
    ended = run("")  # none is named, so all usual ones are tried
    assert ended.returncode == 4
    for name in ("mindspore_lite_ndk", "mindspore_lite", "mindspore-lite"):
        assert f"lib{name}.so" in ended.stderr
    assert "name the library in model.library" in ended.stderr


def test_a_failed_run_costs_its_frame_only(start: Start, tmp_path: Path) -> None:
    ended = start(frames=50, switches={"FAIL_RUNS": "9"})
    assert ended.returncode == 0, ended.stderr
    assert "OP_EXECUTE_FAILURE (0xFFFFFED1)" in ended.stderr
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 49


def test_a_file_that_is_no_model_is_named(start: Start, tmp_path: Path) -> None:
    (tmp_path / "model.ms").write_text("nothing of the kind")
    ended = start("--quiet")
    assert ended.returncode == 4
    assert "model.ms: cannot be built for CPU: GRAPH_FILE_ERROR (0xFFFFFF38)" in ended.stderr


def test_open_sizes_are_filled_in_by_input_shape(start: Start, tmp_path: Path) -> None:
    image = StandInTensor("image", "float32", (1, -1, -1, 3), "NHWC")
    mslite_standin.write_model(tmp_path / "model.ms", [image], OUTPUTS)
    ended = start("--quiet")
    assert ended.returncode == 4
    assert "input 0 'image' has the open shape [1,?,?,3]" in ended.stderr
    ended = start("--quiet", more=f"input_shape: [1, {HEIGHT}, {WIDTH}, 3]")
    assert (ended.returncode, ended.stderr) == (0, "")
    _check(tmp_path, "float32", 5)
