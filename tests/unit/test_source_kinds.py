"""Which reader and which overflow policy the settings of a source lead to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import ConfigError
from pipeline.sources import SourceSettings, kind_of, make_reader, overflow_of
from pipeline.sources.synthetic import SyntheticReader

if TYPE_CHECKING:
    from tests.unit.playing import settings
else:
    from playing import settings


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


@pytest.mark.parametrize("uri", [True, -1, "", 1.5, None])
def test_bad_uris_are_one_problem_each(uri: Any) -> None:
    with pytest.raises(ValueError, match=r"1 validation error.*\n.*\n.*needed a path, a URL"):
        SourceSettings(uri=uri)


def test_a_reader_is_its_own_reader() -> None:
    reader = SyntheticReader(settings("synthetic:"), MonotonicClock())
    assert make_reader(reader, MonotonicClock()) is reader


def test_a_source_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="needed settings or an async iterable, got list"):
        make_reader([], MonotonicClock())  # type: ignore[arg-type]
