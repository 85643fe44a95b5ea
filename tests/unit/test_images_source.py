"""Folders of images: their order and pace, and what is said of one that is bad."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import SourceError
from pipeline.sources import make_reader
from pipeline.sources.images import ImagesReader, natural_key

if TYPE_CHECKING:
    from tests.unit.playing import LeapingClock, buffer_of, play, settings
else:
    from playing import LeapingClock, buffer_of, play, settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (1, 2, 10):
        path = tmp_path / f"Frame{number}.png"
        cv2.imwrite(str(path), np.full((4, 6, 3), number, np.uint8))
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / ".hidden.png").write_text("no image")
    (tmp_path / "sub.png").mkdir()
    return tmp_path


def test_images_come_in_natural_order(folder: Path) -> None:
    reader = make_reader(settings(folder, fps=5), MonotonicClock())
    assert isinstance(reader, ImagesReader)
    assert reader.open()[:4] == (6, 4, 5, 3)
    reader.close()
    frames, error = play(reader)
    assert error is None
    assert [int(frame[0, 0, 0]) for frame in frames] == [1, 2, 10]


def test_natural_order_of_names() -> None:
    names = ["b2", "a10", "A2", "a1b10", "a1b9", "a", "a²"]
    assert sorted(names, key=natural_key) == ["a", "a1b9", "a1b10", "A2", "a10", "a²", "b2"]


def test_images_loop_and_realtime(folder: Path) -> None:
    reader = ImagesReader(settings(folder, loop=True, realtime=True), LeapingClock())
    assert reader.open()[:4] == (6, 4, 30, None)
    stamps = [reader.grab() for _ in range(7)]
    assert stamps == [round(1e9 / 30) * i for i in range(7)]
    reader.close()
    assert reader.grab() is None


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (cv2.imencode(".png", np.zeros((5, 6, 3), np.uint8))[1].tobytes(), "6x5.*needed 6x4"),
        (b"no image", "not an image"),
        (b"", "not an image"),
        (cv2.imencode(".png", np.zeros((4, 6, 3), np.uint8))[1].tobytes()[:40], "not an image"),
        (cv2.imencode(".jpg", np.zeros((4, 6, 3), np.uint8))[1].tobytes()[:-3], "cut off"),
    ],
)
def test_a_bad_image_is_named(folder: Path, data: bytes, told: str) -> None:
    (folder / "Frame3.png").write_bytes(data)
    frames, error = play(ImagesReader(settings(folder), MonotonicClock()))
    assert len(frames) == 2
    assert error is not None
    with pytest.raises(SourceError, match=rf"Frame3\.png: .*{told}"):
        raise error


def test_an_image_that_vanished_is_named(folder: Path) -> None:
    reader = ImagesReader(settings(folder), MonotonicClock())
    buffer = buffer_of(reader.open())
    (folder / "Frame1.png").unlink()
    assert reader.grab() is not None
    with pytest.raises(SourceError, match=r"Frame1\.png: No such file"):
        reader.retrieve(buffer)


def test_grey_images_become_colour(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "g.png"), np.full((4, 6), 9, np.uint8))
    frames, _ = play(ImagesReader(settings(tmp_path), MonotonicClock()))
    assert frames[0].shape == (4, 6, 3)
    assert (frames[0] == 9).all()


def test_a_folder_without_images(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no image in this folder"):
        make_reader(settings(tmp_path), MonotonicClock()).open()
    with pytest.raises(SourceError, match="no such folder"):
        ImagesReader(settings(tmp_path / "no"), MonotonicClock()).open()
