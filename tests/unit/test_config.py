"""Configurations: what is accepted, and what is said about everything else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pipeline.config.loading import Config, json_schema, load, parse
from pipeline.errors import ConfigError, PipelineError, SourceError
from pipeline.sources import SourceSettings

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))

GOOD = """\
source: {uri: clip.mp4}
model: {path: model.onnx}
"""
SIMULATED: dict[str, Any] = {"source": {"uri": "synthetic:"}, "model": {"engine": "simulated"}}

Check = Callable[..., Config]  # the fixture of conftest.py


def source_of(config: Config) -> SourceSettings:
    """The one source."""
    (source,) = config.sources.values()
    return source


def test_every_shipped_configuration_is_valid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("CAMERA", "CLIP", "MODEL", "DEVICE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "face.rknn").write_bytes(b"RKNN")  # no package brings one
    monkeypatch.setenv("RKNN_MODEL", str(tmp_path / "face.rknn"))
    assert {"demo", "file", "rk3588", "synthetic", "usb_camera"} <= {path.stem for path in CONFIGS}
    (tmp_path / "model").touch()
    for path in CONFIGS:
        if "${MODEL}" in path.read_text():  # for engines whose models no package has
            monkeypatch.setenv("MODEL", str(tmp_path / "model"))
        else:
            monkeypatch.delenv("MODEL", raising=False)
        config = load(path)
        for sink in config.sinks:
            target = getattr(sink, "path", None)
            assert target is None or Path(target).parent == ROOT / "out", path


def test_defaults_and_absolute_paths(check: Check, tmp_path: Path) -> None:
    config = check(GOOD + "sinks: [{kind: jsonl, path: out/a.jsonl}, {kind: console}]\n")
    assert source_of(config).uri == str(tmp_path / "clip.mp4")
    assert config.model.path == str(tmp_path / "model.onnx")
    assert getattr(config.sinks[0], "path", "") == str(tmp_path / "out/a.jsonl")
    assert (config.ring.depth, config.model.contexts, config.drain_s) == (4, 1, 5.0)
    assert (config.model.engine, config.model.device) == ("openvino", "CPU")


@pytest.mark.parametrize(
    ("text", "overrides", "said"),
    [
        ("ring:\n  depth: 0\n", [], "ring.depth: must be at least 1, got 0 (line 4, column 10)"),
        ("ring: {depth: 0}\n", [], "ring.depth: must be at least 1, got 0 (line 3, column 15)"),
        ("ring: {}\n", ["ring.depth=0"], "ring.depth: must be at least 1, got 0 (from --set)"),
        (
            "ring: {depth: 0}\n",
            ["drain_s=1"],
            "ring.depth: must be at least 1, got 0 (line 3, column 15)",
        ),
        (
            "sinks: [{kind: jsonl, path: '${HERE}', queue: 0}]\n",
            [],
            "sinks.0.queue: must be at least 1, got 0 (line 3, column 47)",
        ),
        (
            "sinks:\n- kind: jsonl\n",
            [],
            "sinks.0.path: missing, but it is needed (line 4, column 3)",
        ),
        (
            "x-a: &a {depth: 0}\nring: *a\n",
            [],
            "ring.depth: must be at least 1, got 0 (line 3, column 17)",
        ),
        (
            "ring: 3\n",
            ["drain_s=1"],
            "ring: needs a mapping (key: value), got 3 (line 3, column 7)",
        ),
    ],
)
def test_messages_end_with_the_line_and_column(
    check: Check, monkeypatch: pytest.MonkeyPatch, text: str, overrides: list[str], said: str
) -> None:
    monkeypatch.setenv("HERE", "out.jsonl")
    with pytest.raises(ConfigError) as caught:
        check(GOOD + text, *overrides)
    assert str(caught.value) == f"camera.yaml: {said}"


def test_old_names_are_taken_with_a_note(check: Check, caplog: pytest.LogCaptureFixture) -> None:
    sinks = "sinks: [{kind: console}, {kind: console, policy: block}]\n"
    config = check(GOOD + sinks, "drain_seconds=2")
    assert (config.drain_s, config.sinks[1].overflow) == (2.0, "block")
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "drain_seconds: is now drain_s; the next release does not know the old name",
        "sinks.1.policy: is now overflow; the next release does not know the old name",
    ]
    with pytest.raises(ConfigError, match=r"drain_s: must be at least 0, got -1 \(from --set\)"):
        check(GOOD, "drain_seconds=-1")
    with pytest.raises(
        ConfigError, match=r"sinks\.0\.policy: is the old name of sinks\.0\.overflow"
    ):
        check(GOOD + "sinks: [{kind: console, policy: block, overflow: block}]\n")


def test_paths_start_at_the_folder_of_the_file(check: Check, tmp_path: Path) -> None:
    check(GOOD)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "other.yaml").write_text(GOOD.replace("clip", "../clip"))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "deep/other.yaml")
    assert f"no such file: {tmp_path}/deep/model.onnx" in str(caught.value)


@pytest.mark.parametrize(
    ("library", "expected"),
    [("lib/libx.so", "{folder}/lib/libx.so"), ("libx.so", "libx.so"), ("/a/libx.so", "/a/libx.so")],
)
def test_a_library_without_a_folder_is_left_to_the_loader(
    check: Check, tmp_path: Path, library: str, expected: str
) -> None:
    config = check(GOOD, f"model.library={library}")
    assert config.model.library == expected.format(folder=tmp_path)


def test_an_option_that_is_a_path_starts_at_the_folder_of_the_file(
    check: Check, tmp_path: Path
) -> None:
    config = check(GOOD, "model.options={cache_dir: cache, hint: latency}")
    assert config.model.options == {"cache_dir": str(tmp_path / "cache"), "hint": "latency"}


def test_a_section_that_is_all_comments_is_left_out(check: Check) -> None:
    assert check(GOOD + "ring:\npreprocess:\nsinks:\n") == check(GOOD)


@pytest.mark.parametrize("uri", ["0", "/dev/video0", "rtsp://nowhere.invalid/x", "'synthetic:'"])
def test_what_is_no_file_is_not_looked_for(check: Check, uri: str) -> None:
    config = check(f"source: {{uri: {uri}}}\nmodel: {{path: model.onnx}}\n")
    assert str(source_of(config).uri) == uri.strip("'")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "camera.yaml: empty; at least source and model are needed"),
        ("# nothing\n---\n", "camera.yaml: empty; at least source and model are needed"),
        ("- a\n", "camera.yaml: needs keys such as source and model at the top, got a list"),
        ("hello", "camera.yaml: needs keys such as source and model at the top, got a single"),
        (b"source:\n  uri: caf\xe9\n", "camera.yaml: line 2: not UTF-8 text (byte 0xe9)"),
        ("a: 1\nb: [1,\n", "camera.yaml: line 3, column 1: not YAML: expected the node content"),
        ("a: b: c", "camera.yaml: line 1, column 5: not YAML: mapping values"),
        ("a: 1\nb: \x07", "camera.yaml: line 2: not YAML: character U+0007 is not allowed"),
        ("a: 1\n---\nb: 1\n", "camera.yaml: line 2, column 1: not YAML: expected a single doc"),
        ("source:\n  uri: 1\n  uri: 2\n", "camera.yaml: source.uri: given twice, on line 2 and"),
        ("a: !!python/name:os.system x", "camera.yaml: a: line 1: the tag tag:yaml.org,2002:py"),
        ("? [a]\n: 1", "camera.yaml: line 1: a key must be a plain word"),
        ("a: &a [*a]", "camera.yaml: nested too deeply"),
        ("[" * 5000, "camera.yaml: nested too deeply"),
        ("a: &a [1,1,1,1,1,1,1,1,1,1]\n"
         "b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
         "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
         "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
         "e: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n", "camera.yaml: has more than"),
        ("#" * (1 << 21), "camera.yaml: larger than"),
    ],
    ids=lambda value: None if isinstance(value, str) and len(value) < 200 else "long",
)  # fmt: skip
def test_a_file_that_is_no_configuration(check: Check, text: str | bytes, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("source.ur=1", "source.ur: unknown key; did you mean 'uri'? (from --set)"),
        ("modell.path=x", "modell: unknown key; did you mean 'model'? (from --set)"),
        ("source.zzzzz=1", "source.zzzzz: unknown key (from --set)"),
        ("sinks=[{kind: jsonl, path: a, pth: b}]", "sinks.0.pth: unknown key; did you mean 'path'"),
        ("sinks=[{kind: jsnl}]", "sinks.0.kind: unknown kind 'jsnl'; did you mean 'jsonl'? Known:"),
        ("sinks=[{path: x}]", "sinks.0.kind: missing, but it is needed"),
        ("sinks=[{kind: jsonl}]", "sinks.0.path: missing, but it is needed"),
        ("sinks=3", "sinks: needs a list, got 3"),
        ("sinks=[3]", "sinks.0: needs a mapping (key: value), got 3"),
        ("model.engine=openvno", "model.engine: unknown engine 'openvno'; did you mean 'openv"),
        ("model.engine=tpu", "model.engine: unknown engine 'tpu'; known: "),
        ("model.contexts=yes", "model.contexts: needs a whole number or 'auto', got 'yes'"),
        ("model.contexts=2.0", "model.contexts: needs a whole number or 'auto', got 2.0"),
        ("model.contexts=true", "model.contexts: needs a whole number or 'auto', got true"),
        ("model.contexts=0", "model.contexts: must be at least 1, got 0"),
        ("model.contexts=65", "model.contexts: must be at most 64, got 65"),
        ("model.device=''", "model.device: must not be empty"),
        ("model.path=", "model.path: missing, but engine openvino needs a model file"),
        ("model.path=.", "model.path: is a folder, not a model file: "),
        ("model.path=[a]", "model.path: needs text, got a list of 1"),
        ("model.input_shape=[1, 0]", "model.input_shape.1: must be at least 1, got 0"),
        ("model.input_shape=[1, x]", "model.input_shape.1: needs a whole number, got 'x'"),
        ("model.input_shape=[]", "model.input_shape: must have at least 1 entries, got a list"),
        ("model.options.a=1", "model.options.a: engine openvino has no such option"),
        ("model={path: model.onnx, engine: simulated, options: {latncy_ms: 1}}",
         "model.options.latncy_ms: engine simulated has no such option; did you mean 'latency"),
        ("model={engine: simulated, options: {latency_ms: fast}}",
         "model.options.latency_ms: needs a number, got 'fast'"),
        ("ring.depth=0", "ring.depth: must be at least 1, got 0"),
        ("ring.depth=257", "ring.depth: must be at most 256, got 257"),
        (f"ring.depth={10**30}", f"ring.depth: must be at most 256, got {10**30}"),
        ("ring.depth=four", "ring.depth: needs a whole number or 'auto', got 'four'"),
        ("ring=4", "ring: needs a mapping (key: value), got 4"),
        ("source.uri=true", "source.uri: needed a path, a URL or a camera index (0 or more), got"),
        ("source.uri=-1", "source.uri: needed a path, a URL or a camera index (0 or more), got"),
        ("source.loop=yes", "source.loop: needs true or false, got 'yes'"),
        ("source.fps=.nan", "source.fps: must be a finite number, got .nan"),
        ("source.overflow=lates", "source.overflow: unknown overflow 'lates'; did you mean 'late"),
        ("source.uri='synthetic:?widht=3'", "source.uri: synthetic: knows width"),
        ("preprocess.mean=[1, b]", "preprocess.mean.1: needs a number, got 'b'"),
        ("drain_s=-1", "drain_s: must be at least 0, got -1"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_place(check: Check, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(GOOD, override)
    assert str(caught.value).splitlines()[0].startswith(f"camera.yaml: {message}")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("nonsense", "--set nonsense: write it as path.to.key=value"),
        ("=3", "--set =3: write it as path.to.key=value"),
        ("ring..depth=3", "--set ring..depth=3: write it as path.to.key=value"),
        ("source.uri.x=3", "--set source.uri.x: source.uri: is a single value"),
        ("sinks.2.path=x", "--set sinks.2.path: sinks: has 1 entries, counted from 0"),
        ("sinks.x.path=x", "--set sinks.x.path: sinks: has 1 entries, counted from 0"),
        ("ring.depth=[1", "--set ring.depth: line 1, column 3: not YAML: "),
    ],
)
def test_a_bad_override_is_named(check: Check, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(GOOD + "sinks: [{kind: console}]\n", override)
    assert str(caught.value).startswith(message)


def test_overrides_are_yaml_and_reach_into_lists(check: Check, tmp_path: Path) -> None:
    text = GOOD + "sinks: [{kind: jsonl, path: a}]\n"
    config = check(
        text, "sinks.0.path=b", "sinks.1={kind: console}", "ring.depth=8", "source.loop=true",
        "preprocess.mean=[1, 2.5, 1e-3]", "model.contexts=2", "model.contexts=3",
    )  # fmt: skip
    assert getattr(config.sinks[0], "path", "") == str(tmp_path / "b")
    assert config.sinks[1].kind == "console"
    assert config.ring.depth == 8
    assert source_of(config).loop is True
    assert config.preprocess.mean == (1.0, 2.5, 0.001)
    assert config.model.contexts == 3


def test_fewer_slots_than_contexts(check: Check) -> None:
    with pytest.raises(ConfigError) as caught:
        check(GOOD, "ring.depth=1", "model.contexts=2")
    assert str(caught.value) == (
        "camera.yaml: ring.depth: 1 is fewer than model.contexts 2: each context needs a slot"
    )


def test_all_problems_are_told_at_once(check: Check) -> None:
    with pytest.raises(ConfigError) as caught:
        check(
            "source: {ur: clip.mp4, loop: 3}\nmodel: {path: gone.onnx, contexts: yes}\n"
            "sinks: [{kind: jsonl}]\nring: {depth: 0}\n"
        )
    lines = str(caught.value).splitlines()
    assert all(line.startswith("camera.yaml: ") for line in lines)
    places = [line.split(": ")[1] for line in lines]
    assert sorted(places) == [
        "model.contexts", "model.path", "ring.depth", "sinks.0.path", "source.loop", "source.ur",
    ]  # fmt: skip


def test_a_missing_model_is_a_bad_configuration(check: Check, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        check(GOOD, "model.path=gone.onnx")
    message = str(caught.value)
    assert message.startswith(f"camera.yaml: model.path: no such file: {tmp_path}/gone.onnx")


@pytest.mark.parametrize("uri", ["gone.mp4", "package://not_there_at_all/x.mp4"])
def test_a_missing_clip_is_a_source_error(check: Check, uri: str) -> None:
    with pytest.raises(SourceError, match=r"^camera\.yaml: source\.uri: ") as caught:
        check(GOOD, f"source.uri={uri}")
    assert caught.value.exit_code == 3


def test_a_missing_clip_comes_after_what_is_wrong_with_the_file(check: Check) -> None:
    with pytest.raises(ConfigError) as caught:
        check(GOOD, "source.uri=gone.mp4", "ring.depth=0")
    first, second = str(caught.value).splitlines()
    assert first.startswith("camera.yaml: ring.depth")
    assert second.startswith("camera.yaml: source.uri: no such file")


@pytest.mark.parametrize(
    ("target", "other"),
    [("clip.mp4", "source.uri"), ("./model.onnx", "model.path"), ("x/../a.jsonl", "sinks.0.path")],
)
def test_a_sink_does_not_overwrite_what_else_is_used(check: Check, target: str, other: str) -> None:
    sinks = f"sinks: [{{kind: jsonl, path: a.jsonl}}, {{kind: jsonl, path: {target}}}]\n"
    with pytest.raises(ConfigError, match=rf"sinks\.1\.path: would overwrite {other}: /"):
        check(GOOD + sinks)


def test_extra_sinks_come_last_and_are_checked_too(check: Check) -> None:
    extra = [{"kind": "jsonl", "path": "/tmp/extra.jsonl"}]
    config = check(GOOD + "sinks: [{kind: console}]\n", sinks=extra)
    assert [sink.kind for sink in config.sinks] == ["console", "jsonl"]
    with pytest.raises(ConfigError, match=r"sinks\.1\.path: would overwrite sinks\.0\.path"):
        check(GOOD + "sinks: [{kind: jsonl, path: /tmp/extra.jsonl}]\n", sinks=extra)


class TestEnvironment:
    def test_unquoted_references_have_the_type_of_their_value(
        self, check: Check, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DEPTH", "6")
        monkeypatch.setenv("CLIP", "clip.mp4")
        monkeypatch.delenv("NOT_SET", raising=False)
        config = check(
            "source: {uri: ${CLIP}, name: '${DEPTH}', loop: ${NOT_SET:-true}}\n"
            'model: {path: "${NOT_SET:-model}.onnx"}\n'
            "ring:\n  depth: ${DEPTH}  # not ${THIS}\n"
        )
        assert (config.ring.depth, source_of(config).name, source_of(config).loop) == (6, "6", True)
        assert str(source_of(config).uri).endswith("/clip.mp4")
        assert str(config.model.path).endswith("/model.onnx")

    def test_unset_variables_are_named_each_at_its_place(
        self, check: Check, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("NOT_SET", raising=False)
        with pytest.raises(ConfigError) as caught:
            check("source: {uri: ${NOT_SET}}\nmodel: {path: a/${NOT_SET}}\n")
        said = "environment variable NOT_SET is not set and has no default"
        assert str(caught.value).splitlines() == [
            f"camera.yaml: source.uri: {said} (line 1, column 15)",
            f"camera.yaml: model.path: {said} (line 2, column 15)",
        ]
        check("source: {uri: ${NOT_SET}}\nmodel: {path: model.onnx}\n", "source.uri=0")

    def test_values_of_the_environment_are_not_shown(
        self, check: Check, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SECRET", "hunter2")
        with pytest.raises(ConfigError) as caught:
            check(GOOD, "ring.depth=${SECRET}", "source.overflow=${SECRET}")
        assert "hunter2" not in str(caught.value)
        assert "got '${SECRET}'" in str(caught.value)

    def test_what_a_variable_holds_is_not_read_as_yaml_structure(
        self, check: Check, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NAME", "a}, model: {path: evil")
        config = check("source: {uri: clip.mp4, name: ${NAME}}\nmodel: {path: model.onnx}\n")
        assert source_of(config).name == "a}, model: {path: evil"


@pytest.mark.parametrize(
    "override",
    [
        "ring.depth='rtsp://bob:hunter2@cam/x'",
        "source.overflow='rtsp://bob:hunter2@cam/x'",
        "source.uri='rtsp:/bob:hunter2@cam/x'",
        "'rtsp://bob:hunter2@cam/x'",
        "model.path='package://nope/x?token=hunter2'",
    ],
)
def test_credentials_are_never_in_a_message(check: Check, override: str) -> None:
    with pytest.raises(PipelineError) as caught:
        check(GOOD, override)
    assert "hunter2" not in str(caught.value)
    assert "***" in str(caught.value) or "a URI begins with a scheme" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nope.yaml", "nope.yaml: no such file"),
        ("folder", "folder: is a folder, not a configuration file"),
        ("clip.mp4/x.yaml", "clip.mp4/x.yaml: cannot be read: Not a directory"),
        ("x" * 300, f"{'x' * 300}: cannot be read: File name too long"),
        ("/dev/zero", "/dev/zero: larger than 1048576 bytes"),
    ],
)
def test_a_file_that_cannot_be_read(check: Check, tmp_path: Path, name: str, message: str) -> None:
    check(GOOD)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError) as caught:
        load(name)
    assert str(caught.value) == message


class TestMapping:
    def test_paths_tuples_and_a_base(self, tmp_path: Path) -> None:
        (tmp_path / "m.onnx").write_bytes(b"x")
        mapping: dict[str, Any] = {
            "source": {"uri": 0},
            "model": {"path": Path("m.onnx"), "input_shape": (1, 3, 32, 32)},
        }
        config = parse(mapping, tmp_path)
        assert config.model.path == str(tmp_path / "m.onnx")
        assert config.model.input_shape == (1, 3, 32, 32)
        assert mapping["model"]["path"] == Path("m.onnx")

    def test_a_config_is_checked_and_made_absolute_like_a_mapping(self, tmp_path: Path) -> None:
        (tmp_path / "m.onnx").write_bytes(b"x")
        made = Config.model_validate({"source": {"uri": 0}, "model": {"path": "m.onnx"}})
        config = parse(made, tmp_path)
        assert config.model.path == str(tmp_path / "m.onnx")
        assert parse(config, "/") == config
        assert source_of(config).model_fields_set == {"uri"}

    @pytest.mark.parametrize(
        ("mapping", "message"),
        [
            ({"source": {"uri": object()}}, "source.uri: needs plain data, got object"),
            ({}, "model: missing, but it is needed"),
            ({"model": SIMULATED["model"]}, "source: needed, or cameras, and not both"),
            (
                SIMULATED | {"cameras": {"a": {"uri": "synthetic:"}}},
                "source: needed, or cameras, and not both",
            ),
            (
                {"cameras": {"a b": {"uri": "synthetic:"}}, "model": SIMULATED["model"]},
                "cameras.a b",
            ),
            (
                {"cameras": {"a": {"url": "synthetic:"}}, "model": SIMULATED["model"]},
                "cameras.a.url: unknown key; did you mean 'uri'?",
            ),
            (
                SIMULATED | {"ring": {"depth": "4"}},
                "ring.depth: needs a whole number or 'auto', got '4'",
            ),
            (SIMULATED | {"rng": {}}, "rng: unknown key; did you mean 'ring'?"),
        ],
    )
    def test_messages_begin_with_the_path(self, mapping: Any, message: str) -> None:
        with pytest.raises(ConfigError) as caught:
            parse(mapping)
        assert str(caught.value).startswith(message)


def test_schema_describes_every_key_and_accepts_what_ships() -> None:
    schema = json_schema()
    json.dumps(schema)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(Config.model_fields)
    for name, model in schema["$defs"].items():
        for key, value in model.get("properties", {}).items():
            assert "const" in value or value.get("description"), f"{name}.{key}"


@pytest.mark.parametrize(
    ("sections", "valid"),
    [
        ({"source": {"kind": "robot.cameras:Stereo", "options": {"serial": 3}}}, True),
        ({"source": {"kind": "camera"}}, False),
        ({"source": {"kind": "robot:Stereo", "uri": 0}}, False),
        ({"source": {"loop": True}}, False),
        ({"cameras": {"door": {"kind": "robot:Stereo"}, "yard": {"uri": 0}}, "source": None}, True),
        ({"postprocess": {}}, True),
        ({"postprocess": {"kind": "centerface", "threshold": 0.2}}, True),
        ({"postprocess": {"kind": "robot:Eyes", "options": {"threshold": 0.2}}}, True),
        ({"postprocess": {"kind": "robot:Eyes", "threshold": 0.2}}, False),
        ({"postprocess": {"kind": "eyes"}}, False),
        ({"postprocess": {"kind": "${NOWHERE:-centerface}"}}, True),
        ({"sinks": [{"kind": "console"}, {"kind": "robot:Alarm", "queue": 1}]}, True),
        ({"sinks": [{"kind": "robot:Alarm", "path": "out.jsonl"}]}, False),
        ({"sinks": [{"kind": "alarm"}]}, False),
        ({"sinks": [{"kind": "jsonl"}]}, False),
    ],
)
def test_schema_and_loading_agree(sections: dict[str, Any], valid: bool) -> None:
    merged = {**SIMULATED, **sections}
    mapping = {key: value for key, value in merged.items() if value is not None}
    assert Draft202012Validator(json_schema()).is_valid(mapping) is valid
    with contextlib.nullcontext() if valid else pytest.raises(ConfigError):
        parse(mapping)


_words = st.sampled_from(
    ["source", "model", "ring", "sinks", "uri", "path", "kind", "depth", "engine", "options", "x"]
)
_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=4),
    max_leaves=12,
)
_quiet = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def _outcome(make: Callable[[], Config]) -> str:
    """The configuration or the message; any other exception is a bug."""
    try:
        return repr(make())
    except PipelineError as error:
        return str(error)


@_quiet
@given(text=st.text(max_size=60) | st.binary(max_size=60), override=st.text(max_size=20))
def test_no_file_and_no_override_breaks_the_loader(
    check: Check, text: str | bytes, override: str
) -> None:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    for arguments in ((data,), (GOOD, override)):
        assert _outcome(partial(check, *arguments))


@_quiet
@given(mapping=st.dictionaries(_words, _values, max_size=5))
def test_no_mapping_breaks_the_check(tmp_path: Path, mapping: dict[str, Any]) -> None:
    for candidate in (mapping, SIMULATED | mapping):
        assert _outcome(partial(parse, candidate, tmp_path))
