"""Bench on the simulated NPU: bounds that hold by construction, the bottleneck, the words."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.bench.bench import Bench
from pipeline.bench.figures import Report
from pipeline.bench.verdict import verdict
from pipeline.clock import MonotonicClock
from pipeline.config.loading import Config, parse
from pipeline.errors import ConfigError, EngineError, SourceError
from pipeline.memory.frame import Image
from pipeline.memory.results import Detections
from pipeline.postprocess.settings import OwnPostprocessSettings
from pipeline.sources.settings import SourceSettings
from pipeline.sources.synthetic import SyntheticReader
from tests.servers import MjpegServer

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pipeline._native") is None, reason="the native module is not built"
)

SLOW_MS = 20.0
NEARLY = 1 - 1 / 64  # a percentile of a histogram may be that much too low


def config(
    latency_ms: float = 0.0,
    contexts: int = 1,
    source: str | type = "synthetic:",
    query: dict[str, float] | None = None,
    **model: Any,
) -> Config:
    """A simulated engine of this latency; ``source`` is a URI or one of the classes below."""
    options = {"latency_ms": latency_ms, **model.pop("options", {})}
    frames: dict[str, Any] = {"uri": source, "width": 64, "height": 48}
    if isinstance(source, type):
        frames = {"kind": f"{__name__}:{source.__name__}", "options": query or {}}
    return parse(
        {
            "source": frames,
            "model": {
                "engine": "simulated",
                "contexts": contexts,
                "input_shape": [1, 48, 64, 3],
                "options": options,
                **model,
            },
            "sinks": [{"kind": "console"}],
        }
    )


async def measured(settings: Config, rate: float | None = None) -> Report:
    bench = Bench(settings, 0.1, rate, lambda _: None)
    report = await bench.run()
    assert bench.abandoned == []
    return report


class Small(SyntheticReader):
    """A synthetic source of another class; frames of 64 x 48 pixels."""

    def __init__(self, fps: float | None = None) -> None:
        source = SourceSettings(uri="synthetic:", width=64, height=48, fps=fps)
        super().__init__(source, MonotonicClock())


class Slow(Small):
    """A source that needs 20 ms for each frame."""

    def retrieve(self, buffer: Image) -> None:
        threading.Event().wait(SLOW_MS / 1e3)
        super().retrieve(buffer)


@pytest.mark.both_loops
async def test_a_slow_engine_is_the_bottleneck(
    no_leak: None, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = config(SLOW_MS, contexts=2)
    report = await measured(settings)
    assert [each.contexts for each in report.parts.infer] == [1, 2]
    for each in report.parts.infer:
        assert each.count >= 3
        assert each.ms.p50 >= SLOW_MS * NEARLY
        assert each.fps <= each.contexts * 1e3 / SLOW_MS
    assert report.live.latency_ms.p50 >= SLOW_MS * NEARLY
    assert report.overload.latency_ms.p50 >= SLOW_MS * NEARLY
    judged = verdict(report, settings)
    assert judged.bottleneck == "infer"
    assert judged.limit_fps <= 2 * 1e3 / SLOW_MS
    assert capsys.readouterr().out == ""  # its sinks got nothing


async def test_a_slow_source_is_the_bottleneck(no_leak: None) -> None:
    settings = config(source=Slow)
    report = await measured(settings)
    assert report.decode.ms.p50 >= SLOW_MS * NEARLY
    judged = verdict(report, settings)
    assert judged.bottleneck == "decode"
    assert judged.limit_fps <= 1e3 / SLOW_MS


class SlowDecoder:
    """A postprocess that needs 20 ms for each frame."""

    def process(self, outputs: Any, mapping: Any) -> Detections:
        """Wait, and find nothing."""
        threading.Event().wait(SLOW_MS / 1e3)
        return Detections.empty()


async def test_slow_decoding_of_outputs_is_the_bottleneck(no_leak: None) -> None:
    own = OwnPostprocessSettings(kind=f"{__name__}:SlowDecoder")
    settings = config().model_copy(update={"postprocess": own})
    report = await measured(settings)
    assert report.parts.postprocess.ms.p50 >= SLOW_MS * NEARLY
    assert verdict(report, settings).bottleneck == "postprocess"


async def test_a_batch_counts_each_of_its_frames(no_leak: None) -> None:
    settings = config(SLOW_MS)
    model = settings.model.model_copy(
        update={
            "input_shape": (4, 48, 64, 3),
            "options": {"latency_ms": SLOW_MS, "outputs": [{"name": "out", "shape": [4, 10]}]},
        }
    )
    report = await measured(settings.model_copy(update={"model": model}))
    (infer,) = report.parts.infer
    assert report.parts.batch == 4
    assert infer.ms.p50 >= SLOW_MS * NEARLY
    assert infer.fps <= 4 * 1e3 / SLOW_MS


async def test_the_live_rate_is_at_most_the_sources_own(no_leak: None) -> None:
    paced = "synthetic:?fps=25"
    assert (await measured(config(1, source=paced))).rate is not None
    slow = await measured(config(SLOW_MS * 5, source=paced))
    assert slow.rate == pytest.approx(slow.offline.fps / 2)
    assert (await measured(config(1, source=paced), 40)).rate == 40


class Camera(Small):
    """A source with a pace of its own."""

    live = True


async def test_a_camera_is_measured_at_its_own_pace(no_leak: None) -> None:
    settings = config(source=Camera, query={"fps": 200})
    report = await measured(settings, rate=10)
    assert report.rate is None
    assert report.paced_by_source
    assert "decode" not in verdict(report, settings).bounds_fps
    assert any("own pace" in note for note in report.notes)
    assert any("--rate was ignored" in note for note in report.notes)


async def test_a_stream_of_a_real_server(no_leak: None) -> None:
    with MjpegServer(width=160, height=120, fps=50) as server:
        settings = config(source=server.url)
        report = await measured(settings)
    assert report.size == (160, 120)
    assert report.paced_by_source
    assert report.live.results >= 3
    assert verdict(report, settings).bottleneck != "decode"


async def test_only_the_first_of_several_cameras(no_leak: None) -> None:
    cameras = {"front": {"uri": "synthetic:"}, "rear": {"uri": "synthetic:"}}
    settings = parse(
        {"cameras": cameras, "model": {"engine": "simulated", "input_shape": [1, 48, 64, 3]}}
    )
    report = await measured(settings)
    assert report.camera == "front"
    assert report.notes == ("of 2 cameras only 'front' was measured",)


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"options": {"fail_runs": [40]}}, EngineError, "run 40"),
        ({"options": {"refuse_allocation": 0}}, EngineError, "ring.depth: "),
        ({"input_shape": [1, 48, 64, 4]}, ConfigError, "model.input_shape|model.path"),
    ],
    ids=["run", "memory", "input"],
)
async def test_errors_are_those_of_a_run(
    no_leak: None, settings: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        await measured(config(1, **settings))


class Empty(Small):
    """A source without a frame."""

    def grab(self) -> None:
        """End at once."""
        return


async def test_a_source_that_ends_before_a_frame(no_leak: None) -> None:
    with pytest.raises(SourceError, match=r"source\.kind: it ended before there was a frame"):
        await measured(config(source=Empty))


class Silent(Camera):
    """A camera that sends nothing."""

    def grab(self) -> int | None:
        """Wait until it is interrupted."""
        self._stop.wait()
        return None


async def test_a_camera_that_sends_nothing_is_given_up(no_leak: None) -> None:
    silent = SourceSettings(kind=f"{__name__}:Silent", open_timeout_s=0.01, read_timeout_s=0.01)
    with pytest.raises(SourceError, match=r"source\.kind: no frames to measure came within"):
        await measured(config().model_copy(update={"source": silent}))


# The command line.

TEXT = """\
source: {uri: "synthetic:", width: 64, height: 48}
model: {engine: simulated, input_shape: [1, 48, 64, 3], options: {latency_ms: 20}}
"""
KEYS = {
    "stage_ms", "limit_fps", "reached_fps", "reached_ratio", "cpu_ms_per_frame", "latency_ms",
    "bottleneck", "reason", "advice", "loop_lag_ms", "infer", "bounds_fps",
}  # fmt: skip


def command(*arguments: str) -> dict[str, Any]:
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {
        "args": [sys.executable, "-m", "pipeline", "bench", *arguments],
        "env": {**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        "text": True,
    }


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``bench camera.yaml`` in a new folder, whose camera.yaml is ``text``."""

    def start(*arguments: str, text: str = TEXT) -> subprocess.CompletedProcess[str]:
        (tmp_path / "camera.yaml").write_text(text)
        return subprocess.run(
            **command("camera.yaml", *arguments),
            cwd=tmp_path,
            capture_output=True,
            timeout=240,
            check=False,
        )

    return start


def test_table_and_json_tell_the_same(run: Callable[..., Any], tmp_path: Path) -> None:
    done = run(
        "--seconds", "0.1", "--json", "out/bench.json", "--set", "ring.depth=3", "--rounds", "2"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert set(told) >= KEYS
    assert set(told["stage_ms"]) == {"decode", "preprocess", "infer", "postprocess"}
    assert told["stage_ms"]["infer"] >= SLOW_MS * NEARLY
    assert told["bottleneck"] == "infer"
    assert 0 < told["limit_fps"] <= 1e3 / SLOW_MS
    assert told["reached_ratio"] == pytest.approx(told["reached_fps"] / told["limit_fps"], rel=0.01)
    for load in ("unloaded", "overload"):
        assert (
            SLOW_MS * NEARLY <= told["latency_ms"][load]["p50"] <= told["latency_ms"][load]["p99"]
        )
    assert "bottleneck  infer: " in done.stdout
    assert "model.contexts: 2" in done.stdout
    assert done.stderr.count("the whole, at full speed") == 2


def test_quiet_prints_nothing(run: Callable[..., Any], tmp_path: Path) -> None:
    done = run("--seconds", "0.01", "--json", "b.json", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads((tmp_path / "b.json").read_text())["camera"] == "camera"


def test_json_on_standard_output_is_in_place_of_the_table(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    done = run("--seconds", "0.01", "--json", "-")
    assert set(json.loads(done.stdout)) >= KEYS
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("arguments", "text", "code", "said"),
    [
        (["--seconds", "0"], TEXT, 2, "--seconds: needs a number"),
        (["--rate", "fast"], TEXT, 2, "--rate: needs a number"),
        (
            ["--json", "camera.yaml"],
            TEXT,
            2,
            "--json camera.yaml: would overwrite the configuration itself",
        ),
        (["--json", "camera.yaml/x"], TEXT, 5, "--json camera.yaml/x: cannot be written"),
        ([], TEXT.replace("synthetic:", "gone.mp4"), 3, "camera.yaml: source.uri: no such file"),
        ([], TEXT + "rng: {}\n", 2, "camera.yaml: rng: unknown key"),
        ([], TEXT + "postprocess: {kind: centerface}\n", 4, "camera.yaml: postprocess.kind: "),
        ([], TEXT.replace("ms: 20", "ms: 1, fail_runs: [30]"), 4, "error: "),
    ],
    ids=["seconds", "rate", "overwrite", "json", "source", "key", "model", "run"],
)
def test_each_mistake_is_one_line_and_a_code(
    run: Callable[..., Any], arguments: list[str], text: str, code: int, said: str
) -> None:
    quick = [] if "--seconds" in arguments else ["--seconds", "0.05"]
    done = run(*arguments, *quick, text=text)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    assert len(errors) == 1
    assert said in errors[0]
    assert done.stdout == ""


def test_an_engine_that_hangs_is_left_behind(run: Callable[..., Any]) -> None:
    text = TEXT.replace("options: {latency_ms: 20", "run_timeout_s: 0.1, options: {hang_runs: [30]")
    done = run("--seconds", "0.05", text=text)
    assert done.returncode == 4, done.stderr
    assert "error: camera.yaml: model: a run took longer than 0.1 s" in done.stderr
    assert "abandoned: executor" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start it and leave it running; what still lives at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        (tmp_path / "camera.yaml").write_text(TEXT)
        process: subprocess.Popen[str] = subprocess.Popen(
            **command("camera.yaml", *arguments),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("during", ["decode", "infer with"])
def test_a_signal_ends_it_without_figures(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path, during: str, number: int
) -> None:
    seconds = "3600" if during == "decode" else "0.5"  # which it has to get through before
    process = start("--seconds", seconds, "--json", "bench.json")
    assert process.stderr is not None
    while not process.stderr.readline().startswith(during):
        assert process.poll() is None
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert out == ""
    assert "error: stopped before all was measured" in err
    assert "Traceback" not in err
    assert not (tmp_path / "bench.json").exists()


async def test_it_can_be_cancelled_in_the_whole(no_leak: None) -> None:
    reached = asyncio.Event()

    def tell(text: str) -> None:
        if text.startswith("the whole, live"):
            reached.set()

    bench = Bench(config(1), 0.1, 5, tell)
    task = asyncio.create_task(bench.run())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.abandoned == []
