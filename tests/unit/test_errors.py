"""Errors carry the path of the setting to blame, and lower floors know no YAML."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from pipeline import ConfigError, Executor, Pipeline, PipelineError
from pipeline.clock import MonotonicClock
from pipeline.config.loading import load, parse
from pipeline.errors import ModelError, SourceError, at
from pipeline.sources import SourceSettings, make_reader

SIMULATED: dict[str, Any] = {"engine": "simulated", "input_shape": [1, 48, 64, 3]}


def test_a_path_is_prepended_on_the_way_up() -> None:
    with pytest.raises(ModelError) as caught, at("model"), at("options", 0, default=["never"]):
        raise ModelError("too old", ("version",))
    assert caught.value.path == ("model", "options", 0, "version")
    assert (str(caught.value), caught.value.message) == (
        "model.options.0.version: too old",
        "too old",
    )
    with pytest.raises(ModelError) as caught, at("model", default=["path"]):
        raise ModelError("too old")
    assert str(caught.value) == "model.path: too old"


def test_several_errors_have_each_its_path() -> None:
    both = ConfigError(errors=[ConfigError("a", ("x",)), SourceError("b")])
    with pytest.raises(ConfigError) as caught, at("model"):
        raise both
    caught.value.locate(file="camera.yaml")
    assert str(caught.value) == "camera.yaml: model.x: a\ncamera.yaml: model: b"
    assert caught.value.path == ()


@pytest.mark.parametrize("copied", [copy.copy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_keep_the_path(copied: Any) -> None:
    error = ConfigError("wrong", ("sinks", 0), file="camera.yaml")
    again = copied(error)
    assert (type(again), again.path, again.file) == (ConfigError, ("sinks", 0), "camera.yaml")
    assert str(again) == str(error) == "camera.yaml: sinks.0: wrong"
    assert str(copied(ConfigError(errors=[error, error]))) == f"{error}\n{error}"


@pytest.mark.parametrize(
    ("mapping", "path"),
    [
        ({"source": {"uri": "synthetic:", "fps": -1}}, ("source", "fps")),
        ({"source": {"uri": "synthetic:?wdith=3"}}, ("source", "uri")),
        ({"source": {"uri": "gone.mp4"}}, ("source", "uri")),
        ({"cameras": {"door": {"uri": "ftp://nowhere/"}}}, ("cameras", "door", "uri")),
        ({"sinks": [{"kind": "jsonl"}]}, ("sinks", 0, "path")),
        ({"model": {"engine": "simulated", "options": {"latncy_ms": 1}}},
         ("model", "options", "latncy_ms")),
    ],
)  # fmt: skip
def test_a_configuration_s_error_has_the_path_of_the_value(
    mapping: dict[str, Any], path: tuple[str | int, ...]
) -> None:
    source = {} if "cameras" in mapping else {"source": {"uri": "synthetic:"}}
    with pytest.raises(PipelineError) as caught:
        parse({**source, "model": SIMULATED, **mapping})
    assert caught.value.path == path


def test_a_file_and_an_override_are_named_beside_the_path(tmp_path: Path) -> None:
    file = tmp_path / "camera.yaml"
    file.write_text("source: {uri: 'synthetic:'}\nmodel: {engine: simulated, contexts: 0}\n")
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert (caught.value.path, caught.value.file) == (("model", "contexts"), str(file))
    assert caught.value.message.endswith("(line 2, column 38)")
    with pytest.raises(ConfigError) as caught:
        load(file, ["model.contexts=1", "ring.depth=0"])
    assert caught.value.path == ("ring", "depth")
    assert caught.value.message.endswith("(from --set)")


async def test_an_executor_and_a_reader_speak_of_their_own_arguments_only() -> None:
    with pytest.raises(PipelineError) as caught:
        await Executor.open("gone.onnx", engine="openvino")
    assert "model." not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        await Executor.open(None, engine="openvino")
    assert (caught.value.path, "model." in str(caught.value)) == (("path",), False)
    with pytest.raises(ConfigError) as caught:
        await Executor.open(None, engine="simulated", options={"latncy_ms": 1})
    assert caught.value.path == ("options", "latncy_ms")
    with pytest.raises(ConfigError) as caught:
        make_reader(SourceSettings(uri="ftp://nowhere/"), MonotonicClock())
    assert str(caught.value).startswith("uri: ftp:// is not known")


async def test_errors_of_opening_have_the_path_of_the_whole() -> None:
    source = {"uri": "synthetic:?width=64&height=48&frames=3"}
    model = {**SIMULATED, "options": {"refuse_allocation": 0}}
    with pytest.raises(PipelineError) as caught:
        await Pipeline({"source": source, "model": model}).open()
    assert caught.value.path == ("ring", "depth")
    with pytest.raises(PipelineError) as caught:
        await Pipeline({"source": source, "model": {**SIMULATED, "input_shape": [3]}}).open()
    assert caught.value.path == ("model", "path")
