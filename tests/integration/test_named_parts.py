"""Parts of one's own that a configuration names: ``package.module:Name`` and entry points."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pipeline import ConfigError, Pipeline, SinkError, SourceError

pytestmark = pytest.mark.usefixtures("no_leak")

FRAMES = 6
MODULE = """\
    import threading
    import numpy as np
    from pydantic import BaseModel
    from pipeline import Detections, FrameFormat

    calls = []

    def called(name):
        calls.append((name, threading.get_ident()))

    class Alarm:
        needs_image = True

        def __init__(self, port, host="localhost"):
            called(f"make {host}:{port}")

        def open(self, stream):
            called("open")

        def write(self, result):
            assert result.image.shape == (48, 64, 3)
            called(f"write {len(result.detections)}")

        def close(self):
            called("close")

    class Eyes:
        class Options(BaseModel, extra="forbid"):
            score: float = 0.5

        def __init__(self, options):
            self.score = options.score

        def process(self, outputs, mapping):
            called("process")
            one = np.ones(1, np.float32)
            return Detections(
                np.zeros((1, 4), np.float32), self.score * one, np.int32([0]),
                np.empty((1, 0, 2), np.float32), ("person",),
            )

    class Stereo:
        live = True
        opened = 0

        def __init__(self, frames=6, fails=0):
            called("make")
            self.left = frames
            self.fails = fails

        def open(self):
            Stereo.opened += 1
            return FrameFormat(64, 48)

        def grab(self):
            if self.left == 0:
                if Stereo.opened <= self.fails:
                    raise OSError("unplugged")
                return None
            self.left -= 1
            called("grab")
            return 1

        def retrieve(self, buffer):
            buffer[...] = 7

    class Once(Stereo):
        live = False

    class Waits:
        async def write(self, result): ...

    class Nothing: ...

    class Refuses:
        def __init__(self):
            raise ConnectionError("nobody there")

        def write(self, result): ...

    number = 3

    def make_alarm(port):
        return Alarm(port)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module of parts, found but not yet imported."""
    name = f"parts_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / f"{name}_broken.py").write_text("import json\nraise OSError('no such bus')\n")
    (tmp_path / f"{name}_needy.py").write_text("import nowhere_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def config(**changes: Any) -> dict[str, Any]:
    """A short synthetic source on the simulated engine."""
    whole = {
        "source": {"uri": f"synthetic:?frames={FRAMES}&width=64&height=48"},
        "model": {"engine": "simulated"},
        **changes,
    }
    return {key: value for key, value in whole.items() if value is not None}


def names(module: str) -> list[str]:
    """What was called, in order."""
    return [name for name, _ in sys.modules[module].calls]


async def test_a_sink_is_made_opened_called_and_closed_on_one_thread(module: str) -> None:
    sink = {"kind": f"{module}:Alarm", "options": {"port": 7}}
    pipeline = Pipeline(config(sinks=[sink]))
    assert module not in sys.modules, "made, but not opened: nothing is imported"
    async with pipeline:
        await pipeline.wait()
    assert names(module) == ["make localhost:7", "open", *["write 0"] * FRAMES, "close"]
    assert len({thread for _, thread in sys.modules[module].calls}) == 1


async def test_a_postprocess_has_its_options_checked_by_its_model(module: str) -> None:
    own = {"kind": f"{module}:Eyes", "options": {"score": 0.25}}
    async with Pipeline(config(postprocess=own)) as pipeline:
        scores = [next(iter(result.detections)).score async for result in pipeline]
    assert scores == [0.25] * FRAMES
    own["options"] = {"skore": 1}
    with pytest.raises(ConfigError, match=r"^postprocess\.options\.skore: .*'score'\?"):
        await Pipeline(config(postprocess=own)).open()


async def test_a_source_that_is_lost_is_made_anew(module: str) -> None:
    source = {
        "kind": f"{module}:Stereo",
        "options": {"fails": 2},
        "overflow": "block",
        "reconnect": {"initial_s": 0.001},
        "frames": 3 * FRAMES,
    }
    async with Pipeline(config(source=source)) as pipeline:
        await pipeline.wait()
    assert pipeline.stats().results == 3 * FRAMES
    assert names(module).count("make") == 3
    assert pipeline.stats().cameras["camera"].reconnects == 2


async def test_a_source_with_an_end_ends_once_and_loses_nothing(module: str) -> None:
    async with Pipeline(config(source={"kind": f"{module}:Once"})) as pipeline:
        values = [int(result.image[0, 0, 0]) async for result in pipeline]
    assert values == [7] * FRAMES
    assert names(module).count("make") == 1


async def test_a_source_is_added_while_the_pipeline_runs(module: str) -> None:
    async with Pipeline(config(source=None, cameras={"one": {"uri": "synthetic:?fps=100"}})) as run:
        await run.add_camera("two", {"kind": f"{module}:Once"})
        with pytest.raises(ConfigError, match=r"^cameras\.three\.kind: there is no module"):
            await run.add_camera("three", {"kind": "nowhere_at_all:It"})
        count = 0
        async for result in run:
            count += result.camera == "two"
            if count == FRAMES:
                break


async def test_a_function_may_make_the_part(module: str) -> None:
    sink = {"kind": f"{module}:make_alarm", "options": {"port": 1}}
    async with Pipeline(config(sinks=[sink])) as pipeline:
        await pipeline.wait()
    assert names(module).count("write 0") == FRAMES


WRONG = [
    ("nowhere_at_all.sinks:It", {}, "kind: there is no module nowhere_at_all"),
    ("{}_needy:It", {}, "kind: {}_needy: cannot be imported: No module named 'nowhere_at_all'"),
    ("{}_broken:It", {}, "kind: {}_broken: cannot be imported: OSError: no such bus"),
    ("{}:Alarn", {}, "kind: module {} has no Alarn; did you mean 'Alarm'?"),
    ("{}:number", {}, "kind: {}:number is no class and no function that makes one"),
    ("{}:Nothing", {}, "kind: Nothing has no method write"),
    ("{}:Waits", {}, "kind: Waits.write is async"),
    ("{}:Alarm", {}, "options.port: missing, but Alarm needs it"),
    ("{}:Alarm", {"port": 1, "hots": 2}, "options.hots: Alarm has no such option; did you mean"),
]


@pytest.mark.parametrize(("kind", "options", "message"), WRONG)
async def test_a_name_that_cannot_be_used_is_refused_with_its_place(
    module: str, kind: str, options: dict[str, Any], message: str
) -> None:
    sink = {"kind": kind.format(module), "options": options}
    with pytest.raises(ConfigError) as caught:
        await Pipeline(config(sinks=[{"kind": "console"}, sink])).open()
    assert str(caught.value).startswith(f"sinks.1.{message.format(module)}")
    assert "\n" not in str(caught.value)


async def test_a_constructor_that_raises_is_an_error_of_its_part(module: str) -> None:
    refuses = {"kind": f"{module}:Refuses"}
    with pytest.raises(SinkError, match=r"^sinks\.0: .*ConnectionError: nobody there") as caught:
        await Pipeline(config(sinks=[refuses])).open()
    cause: BaseException | None = caught.value
    while cause is not None and not isinstance(cause, ConnectionError):
        cause = cause.__cause__
    assert cause is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sinks": [{"kind": "consol"}]}, "sinks.0.kind: unknown kind 'consol'; did you mean"),
        ({"sinks": [{"kind": "x y:z"}]}, "sinks.0.kind: unknown kind 'x y:z'"),
        ({"sinks": [{"kind": "x:z\n"}]}, "sinks.0.kind: unknown kind 'x:z\\n'"),
        ({"postprocess": {"kind": "row"}}, "postprocess.kind: unknown kind 'row'; did you mean"),
        ({"postprocess": {"kind": "a:B", "threshold": 1}}, "postprocess.threshold: unknown key"),
        ({"source": {"kind": "camera"}}, "source.kind: unknown kind 'camera'"),
        ({"source": {"kind": "a:B", "uri": 0}}, "source.uri: belongs to a built-in source"),
        ({"source": {"loop": True}}, "source.uri: missing, but it is needed"),
    ],
)
def test_a_wrong_kind_is_refused_when_it_is_loaded(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Pipeline(config(**changes))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert "kind_of" not in str(caught.value)


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``python -m pipeline`` in a folder."""
    started = [sys.executable, "-m", "pipeline", *arguments]
    return subprocess.run(started, cwd=folder, capture_output=True, text=True, timeout=60)


def test_the_command_line_imports_what_it_runs_only(module: str, tmp_path: Path) -> None:
    sinks = [{"kind": f"{module}:Alarm", "options": {"port": 1}}, {"kind": f"{module}_broken:It"}]
    (tmp_path / "camera.yaml").write_text(json.dumps(config(sinks=sinks)))
    plain = command(tmp_path, "check", "camera.yaml")
    assert (plain.returncode, plain.stderr) == (0, "")
    assert f" {module}_broken:It" in plain.stdout
    message = f"sinks.1.kind: {module}_broken: cannot be imported: OSError: no such bus"
    for arguments in (["check", "--import", "camera.yaml"], ["camera.yaml"]):
        ended = command(tmp_path, *arguments)
        assert ended.returncode == 2
        assert ended.stderr == f"error: camera.yaml: {message}\n"
    ended = command(tmp_path, "--set", f"sinks=[{json.dumps(sinks[0])}]", "camera.yaml")
    assert ended.returncode == 0, ended.stderr


def test_installed_parts_are_listed_and_known_by_name(tmp_path: Path, module: str) -> None:
    installed = tmp_path / "robot_parts-1.2.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: robot-parts\nVersion: 1.2\n")
    points = f"[npu_pipeline.sinks]\nalarm = {module}:Alarm\nconsole = {module}:Waits\n"
    (installed / "entry_points.txt").write_text(points)
    lines = command(tmp_path, "parts").stdout.splitlines()
    assert [line.split() for line in lines if "robot-parts" in line] == [
        ["sinks", "alarm", f"{module}:Alarm", "robot-parts", "1.2"]
    ]
    assert "pipeline.sinks.console:ConsoleSink" in " ".join(lines)
    sinks = [{"kind": "alarm", "options": {"port": 1}}]
    (tmp_path / "camera.yaml").write_text(json.dumps(config(sinks=sinks)))
    assert command(tmp_path, "camera.yaml").returncode == 0
    schema = json.loads(command(tmp_path, "schema").stdout)
    assert {"enum": ["alarm"]} in schema["$defs"]["OwnSinkSettings"]["properties"]["kind"]["anyOf"]


async def test_a_source_that_breaks_and_has_an_end_is_an_error(module: str) -> None:
    source = {"kind": f"{module}:Once", "options": {"fails": 9}}
    with pytest.raises(SourceError, match=r"OSError.*: unplugged"):
        async with Pipeline(config(source=source)) as pipeline:
            await pipeline.wait()
    assert pipeline.stats().results == FRAMES
