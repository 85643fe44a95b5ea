"""Cameras: what they are asked for, and what is said of one that is absent or none."""

from __future__ import annotations

from pathlib import Path

import cv2
import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import SourceError
from pipeline.memory.frame import FrameFormat
from pipeline.sources import make_reader
from pipeline.sources.camera import CameraReader
from tests.unit.playing import settings


@pytest.mark.parametrize("uri", [93, "/dev/video93"])
def test_an_absent_camera_is_named(uri: str | int, capfd: pytest.CaptureFixture[str]) -> None:
    reader = make_reader(settings(uri), MonotonicClock())
    assert isinstance(reader, CameraReader)
    assert reader.live
    with pytest.raises(SourceError, match="camera /dev/video93: no such device"):
        reader.open()
    assert capfd.readouterr().err == ""


def test_what_is_no_camera_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SourceError, match=r"camera /dev/null: cannot be opened"):
        CameraReader(settings("/dev/null", width=640), MonotonicClock()).open()
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="not a device"):
        CameraReader(settings(tmp_path / "file"), MonotonicClock()).open()
    assert capfd.readouterr().err == ""


class StandInCapture:
    """No camera is at hand here: keeps what it is asked for and gives what it can."""

    def __init__(self, gives: dict[int, float]) -> None:
        self.gives = gives
        self.asked: list[tuple[int, float]] = []

    def set(self, prop: int, value: float) -> bool:
        self.asked.append((prop, value))
        return prop in self.gives

    def get(self, prop: int) -> float:
        return self.gives.get(prop, 0.0)

    def frame_format(self) -> FrameFormat:
        return FrameFormat(640, 480, self.gives.get(cv2.CAP_PROP_FPS), 7)


@pytest.mark.parametrize("given", ["MJPG", "YUYV"])
def test_a_camera_is_asked_for_its_pixel_format_first_and_others_are_told(
    given: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mjpg = float(cv2.VideoWriter.fourcc(*"MJPG"))
    code = float(cv2.VideoWriter.fourcc(*given))
    capture = StandInCapture({cv2.CAP_PROP_FOURCC: code, cv2.CAP_PROP_FPS: 15.0})
    monkeypatch.setattr("pipeline.sources.camera.OpenCVCapture", lambda *_: capture)
    monkeypatch.setattr(CameraReader, "_check_device", lambda _: None)
    reader = CameraReader(
        settings(3, width=640, height=480, fps=30, fourcc="MJPG"), MonotonicClock()
    )
    assert reader.open()[:4] == (640, 480, 15, None)
    assert capture.asked == [
        (cv2.CAP_PROP_FOURCC, mjpg),
        (cv2.CAP_PROP_FRAME_WIDTH, 640),
        (cv2.CAP_PROP_FRAME_HEIGHT, 480),
        (cv2.CAP_PROP_FPS, 30),
        (cv2.CAP_PROP_BUFFERSIZE, 2),
    ]
    assert "fps 30 was asked for, the camera gives 15" in caplog.text
    told = "fourcc MJPG was asked for, the camera gives YUYV" in caplog.text
    assert told == (given == "YUYV")
