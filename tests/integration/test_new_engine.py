"""An engine that somebody adds: one Python module, here in a temporary folder, and one line."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pipeline import ConfigError, Executor, Pipeline
from pipeline.config.loading import json_schema, parse
from pipeline.parts import PARTS

pytestmark = pytest.mark.usefixtures("no_leak")

FRAMES = 5
MODULE = '''\
    """Engine ``echo``: gives back the first byte of its input, by the simulated one."""

    from pydantic import BaseModel, Field
    from pipeline import _native
    from pipeline.engines.autotune_values import Trials

    class Options(BaseModel, extra="forbid"):
        latency_ms: float = Field(default=0.0, ge=0)

    OPTIONS = Options
    SWAPS_COLORS = False
    TAKES_DEVICE = True

    def needs_file(options):
        return False

    def open_engine(settings, options, image):
        tensors = {
            "inputs": [_native.TensorSpec("image", "uint8", settings.input_shape, "NHWC")],
            "outputs": [_native.TensorSpec("value", "float32", (1, 1))],
        }
        return _native.open_engine("simulated", {**options.model_dump(), **tensors})

    def trials(settings, cores):
        return Trials(1)

    def list_devices(library):
        return "1.0", [("echo:0", "the only one")]
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "echo_engine.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "echo_engine", raising=False)
    return "echo_engine"


@pytest.fixture
def echo(module: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine with its line in the table."""
    monkeypatch.setitem(PARTS["engines"], "echo", module)
    return "echo"


def config(engine: str, **options: Any) -> dict[str, Any]:
    return {
        "source": {"uri": "synthetic:?width=64&height=48", "frames": FRAMES},
        "model": {
            "engine": engine,
            "device": "echo:0",
            "input_shape": [1, 48, 64, 3],
            "options": options,
        },
    }


async def run(settings: dict[str, Any]) -> list[float]:
    """The first output of each frame less the first byte that the engine was given."""
    apart = []
    async with Pipeline(settings) as pipeline:
        async for result in pipeline:
            assert result.image is not None
            apart.append(float(result.outputs[0].array[0, 0]) - float(result.image[0, 0, 2]))
    return apart


async def test_it_runs_a_pipeline(echo: str) -> None:
    # Colors were swapped before the engine, which says that it cannot.
    assert await run(config(echo, latency_ms=1)) == [0.0] * FRAMES
    async with (
        Executor.open(engine=echo, input_shape=[1, 2, 2, 3]) as executor,
        executor.ring(1) as ring,
        ring.slot() as slot,
    ):
        slot.inputs[0][...] = 9
        await executor.run(slot)
        assert slot.outputs[0].tolist() == [[9.0]]


PROGRAM = """\
import sys
from pipeline.parts import PARTS
PARTS["engines"]["echo"] = "echo_engine"
from pipeline.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def printed(folder: Path, *arguments: str) -> str:
    """Standard output of the command line, with the engine in its table."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_it_is_checked_listed_and_described(echo: str, tmp_path: Path) -> None:
    file = tmp_path / "echo.yaml"
    file.write_text(
        "source: {uri: 'synthetic:'}\n"
        "model: {engine: echo, device: 'echo:0', options: {latency_ms: 1}}\n"
    )
    assert "engine         echo on echo:0" in printed(tmp_path, "check", str(file))
    assert re.search("^echo 1.0 +echo:0 +the only one +usable$", printed(tmp_path, "devices"), re.M)
    assert (
        "echo"
        in json_schema()["$defs"]["ModelSettings"]["properties"]["engine"]["anyOf"][0]["enum"]
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"latncy_ms": 1}, "model.options.latncy_ms: engine echo has no such option; did you mean"),
        ({"latency_ms": -1}, "model.options.latency_ms: must be at least 0, got -1"),
    ],
)
def test_its_options_are_checked_with_the_configuration(
    echo: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(config(echo, **options))
    assert str(caught.value).startswith(said)


def test_a_similar_name_is_told(echo: str) -> None:
    with pytest.raises(ConfigError, match="unknown engine 'ecko'; did you mean 'echo'"):
        parse(config("ecko"))


@pytest.mark.parametrize("option", ["latency_ms", "latncy_ms"])
async def test_one_that_is_named_is_imported_when_it_opens(
    option: str, tmp_path: Path, module: str
) -> None:
    (tmp_path / "named.py").write_text("import echo_engine as Echo\n")
    settings = config("named:Echo", **{option: 1})
    parse(settings)
    assert "echo_engine" not in sys.modules
    try:
        if option == "latency_ms":
            assert await run(settings) == [0.0] * FRAMES
            return
        with pytest.raises(ConfigError, match=r"^model\.options\.latncy_ms: .* no such option"):
            await run(settings)
    finally:
        sys.modules.pop("named", None)


async def test_what_is_no_engine_is_refused(tmp_path: Path, module: str) -> None:
    for engine, said in [
        ("echo_engine:Options", "echo_engine:Options is no engine, it has no OPTIONS, SWAPS"),
        ("echo_engine:Nothing", "module echo_engine has no Nothing"),
        ("no_such_module:Engine", "there is no module no_such_module"),
    ]:
        with pytest.raises(ConfigError) as caught:
            await run(config(engine))
        assert str(caught.value).startswith(f"model.engine: {said}")
