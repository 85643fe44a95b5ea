"""Which reader and which overflow policy the settings of a source lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import ConfigError
from pipeline.sources import SourceSettings, kind_of, make_reader, overflow_of
from pipeline.sources.synthetic import SyntheticReader
from tests.unit.playing import settings


def test_kinds_of_sources(tmp_path: Path) -> None:
    kinds: dict[str | int, str] = {
        0: "camera",
        "/dev/video0": "camera",
        "/dev/v4l/by-id/usb-x": "camera",
        "synthetic:": "synthetic",
        "gstreamer: v4l2src ! appsink": "gstreamer",
        "rtsp://host/x": "stream",
        "https://host/x.mp4": "stream",
        str(tmp_path): "images",
        str(tmp_path / "a.JPG"): "images",
        str(tmp_path / "a.mp4"): "file",
        "/dev/videos/a.mp4": "file",
    }
    for uri, kind in kinds.items():
        assert kind_of(settings(uri)) == kind


def test_overflow_by_kind_and_by_setting() -> None:
    plain = settings("a.mp4")
    assert overflow_of(plain, live=False) == "block"
    assert overflow_of(plain, live=True) == "latest"
    assert overflow_of(settings("a.mp4", realtime=True), live=False) == "latest"
    named = settings("a.mp4", realtime=True, overflow="drop_newest")
    assert overflow_of(named, live=True) == "drop_newest"


@pytest.mark.parametrize("uri", [True, -1, "", 1.5])
def test_bad_uris_are_one_problem_each(uri: Any) -> None:
    with pytest.raises(ValueError, match=r"1 validation error.*\n.*\n.*needed a path, a URL"):
        SourceSettings(uri=uri)


@pytest.mark.parametrize("given", [{}, {"uri": None}, {"kind": None}])
def test_a_source_needs_a_uri_or_a_kind(given: Any) -> None:
    with pytest.raises(ValueError, match=r"1 validation error.*\nuri\n  Field required"):
        SourceSettings(**given)


def test_a_reader_is_its_own_reader() -> None:
    reader = SyntheticReader(settings("synthetic:"), MonotonicClock())
    assert make_reader(reader, MonotonicClock()) is reader


def test_a_source_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="an async iterable or a Reader, got list"):
        make_reader([], MonotonicClock())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("rtsp://bob:p/ss@cam/x", "port is no number .*; percent-encode .*/ is %2F"),
        ("http://bob:p#ss@cam/x", "port is no number .*; percent-encode .*# is %23"),
        ("rtsp://bob:p?ss@cam/x", "percent-encode"),
        ("http://bob:p[ss@cam/x", "percent-encode"),
        ("http://cam:65536/x", "port is no number from 0 to 65535$"),
        ("http://cam:-1/x", "port is no number"),
        ("rtsp://[::1/x", r"no name and no \[address\]$"),
        ("http://my cam/x", "no host can have this name"),
        ("http://bü..er/x", "no host can have this name"),
    ],
)
def test_an_address_that_never_works_is_refused_with_the_right_blame(uri: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        make_reader(SourceSettings(uri=uri), MonotonicClock())
    assert "p/ss" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "rtsp://[::1]:8554/x",
        "rtsp://bücher.example/x",
        "rtsp://bob:p%2Fss%40@cam/x",
        "udp://@:1234",
        "tcp://:1234?listen",
        "srt://:9000?mode=listener",
    ],
)
def test_an_address_that_may_work_is_taken(uri: str) -> None:
    make_reader(SourceSettings(uri=uri), MonotonicClock()).close()
