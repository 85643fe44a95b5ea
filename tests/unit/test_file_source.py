"""Video files: what is delivered, when it is due, and how a reader is looped and stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest

from pipeline.clock import ManualClock, MonotonicClock
from pipeline.errors import SourceError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.sources.file import FileReader
from pipeline.sources.opencv_reader import deliver
from pipeline.sources.pace import Pace
from tests.buffers import Buffer
from tests.unit.playing import CLIP, WATCHDOG, LeapingClock, assert_alike, play, settings

PERIOD = 1e9 * 1001 / 30000


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(call()), daemon=True)
    thread.start()
    return thread, got


def test_a_file_is_delivered_whole_and_in_the_given_buffer(
    decoded: list[Image], either: str
) -> None:
    reader = FileReader(settings(CLIP), MonotonicClock())
    form = reader.open()
    pixels: Any = "i420" if either == "pyav" else "bgr"
    assert form == FrameFormat(176, 144, 30000 / 1001, 120, pixels)
    assert reader.live is False
    buffer = Buffer(form)
    stamps = []
    for expected in decoded:
        stamp = reader.grab()
        assert stamp is not None
        stamps.append(stamp)
        assert_alike(buffer.retrieve(reader), expected, exact=either == "opencv")
    assert reader.grab() is None
    assert reader.copies == 0
    assert stamps == sorted(stamps)
    reader.close()
    reader.close()


@pytest.mark.usefixtures("either")
def test_loop_starts_again_without_a_gap(decoded: list[Image]) -> None:
    reader = FileReader(settings(CLIP, loop=True), MonotonicClock())
    form = reader.open()
    assert form.frames is None
    buffer = Buffer(form)
    for number in range(2 * len(decoded) + 3):
        assert reader.grab() is not None
        image = buffer.retrieve(reader)
        if number % 40 < 3:
            assert_alike(image, decoded[number % len(decoded)])
    reader.interrupt()
    assert reader.grab() is None
    reader.close()


@pytest.mark.usefixtures("either")
def test_loop_opens_again_where_seeking_fails(
    decoded: list[Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.sources.opencv_reader.OpenCVCapture.set", lambda *_: False)
    monkeypatch.setattr("pipeline.sources.pyav_file.PyAVFile.rewind", lambda *_: False)
    frames, error = play(FileReader(settings(CLIP, loop=True), MonotonicClock()), 125)
    assert error is None
    assert_alike(frames[122], decoded[2])


@pytest.mark.usefixtures("either")
def test_realtime_stamps_are_when_frames_were_due() -> None:
    clock = LeapingClock(5_000_000_000)
    reader = FileReader(settings(CLIP, realtime=True, loop=True), clock)
    reader.open()
    stamps = []
    for number in range(250):
        stamp = reader.grab()
        assert stamp is not None
        stamps.append(stamp)
        if number == 50:
            clock.advance(10_000_000_000)  # a slow reader is late, the film is not
    reader.close()
    assert stamps[0] == 5_000_000_000
    np.testing.assert_allclose(np.diff(stamps), PERIOD, atol=2)


@pytest.mark.usefixtures("either")
def test_realtime_waits_and_can_be_interrupted() -> None:
    clock = ManualClock()
    reader = FileReader(settings(CLIP, realtime=True), clock)
    reader.open()
    assert reader.grab() == 0
    thread, got = in_thread(reader.grab)
    clock.advance(round(PERIOD))
    thread.join(WATCHDOG)
    assert got == [round(PERIOD)]
    thread, got = in_thread(reader.grab)  # not due before the clock moves again
    reader.interrupt()
    thread.join(WATCHDOG)
    assert got == [None]
    reader.close()


def test_pace_follows_uneven_stamps_and_falls_back_to_the_rate() -> None:
    stop = threading.Event()
    pace = Pace(LeapingClock(), 10)
    stamps = [0, 50, 300, 300, 310]
    waited = [pace.wait(stop, s * 1_000_000) for s in stamps]
    assert waited == [0, 50_000_000, 300_000_000, 400_000_000, 410_000_000]
    pace.restart()
    assert pace.wait(stop, 0) == 510_000_000
    stop.set()
    assert pace.wait(stop) is None


@pytest.mark.usefixtures("either")
def test_interrupt_is_legal_before_open_and_after_close() -> None:
    reader = FileReader(settings(CLIP), MonotonicClock())
    reader.interrupt()
    reader.open()
    assert reader.grab() is None
    reader.close()
    reader.interrupt()


@pytest.mark.usefixtures("either")
def test_a_buffer_of_another_size_is_refused() -> None:
    reader = FileReader(settings(CLIP), MonotonicClock())
    reader.open()
    assert reader.grab() is not None
    with pytest.raises(SourceError, match=r"carphone.*176x144 .*needed .*176x145"):
        reader.retrieve(np.zeros((145, 176, 3), np.uint8))
    reader.close()
    with pytest.raises(SourceError, match="not open"):
        reader.retrieve(np.zeros((144, 176, 3), np.uint8))


def test_deliver_copies_what_was_decoded_elsewhere() -> None:
    buffer = np.zeros((2, 3, 3), np.uint8)
    assert deliver("x", buffer, buffer) is False
    assert deliver("x", buffer[:], buffer) is False
    assert deliver("x", np.full((2, 3, 3), 7, np.uint8), buffer) is True
    assert (buffer == 7).all()
    with pytest.raises(SourceError, match="x: the frame is 3x2 grey uint8"):
        deliver("x", np.zeros((2, 3), np.uint8), buffer)


def test_log_levels_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.sources import videoio

    monkeypatch.setattr("pipeline.sources.file._movie", lambda *_: None)
    before = cv2.utils.logging.getLogLevel()
    reader = FileReader(settings(CLIP), MonotonicClock())
    reader.open()
    assert cv2.utils.logging.getLogLevel() == before
    if (ffmpeg := videoio._ffmpeg) is not None:
        assert ffmpeg._get() == -8
        reader.close()
        assert ffmpeg._get() != -8
    with pytest.raises(SourceError):
        FileReader(settings("/nowhere.mp4"), MonotonicClock()).open()
    assert cv2.utils.logging.getLogLevel() == before
