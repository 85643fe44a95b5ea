"""Folders of images: their order and pace, and what is said of one that is bad."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import SourceError
from pipeline.memory.frame import Image
from pipeline.sources import make_reader
from pipeline.sources.images import ImagesReader, natural_key
from tests.unit.playing import LeapingClock, buffer_of, play, settings


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
        (cv2.imencode(".png", np.zeros((5, 6, 3), np.uint8))[1].tobytes(), "6x5.*6x4"),
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
    (folder / "Frame2.png").unlink()
    assert reader.grab() is not None
    reader.retrieve(buffer)
    with pytest.raises(SourceError, match=r"Frame2\.png: No such file"):
        reader.grab()


def test_grey_images_become_color(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "g.png"), np.full((4, 6), 9, np.uint8))
    frames, _ = play(ImagesReader(settings(tmp_path), MonotonicClock()))
    assert frames[0].shape == (4, 6, 3)
    assert (frames[0] == 9).all()


def test_a_folder_without_images(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no image in this folder"):
        make_reader(settings(tmp_path), MonotonicClock()).open()
    with pytest.raises(SourceError, match="no such folder"):
        ImagesReader(settings(tmp_path / "no"), MonotonicClock()).open()


def make_image(width: int = 640, height: int = 480) -> Image:
    """Smooth, and the same in no two corners."""
    y, x = np.mgrid[0:height, 0:width]
    return np.dstack([x * 255 // width, y * 255 // height, (x + 2 * y) % 256]).astype(np.uint8)


def half_of_the_data(jpeg: bytes) -> bytes:
    """A JPEG that lacks half of its coded data, but not its end mark."""
    start = jpeg.index(b"\xff\xda")
    return jpeg[: start + (len(jpeg) - start) // 2] + b"\xff\xd9"


@pytest.mark.parametrize(("choice", "count"), [(None, 1), ("fail", 1), ("drop", 2), ("count", 3)])
def test_a_damaged_jpeg_is_told_counted_and_handed_out_by_choice_only(
    tmp_path: Path, choice: str | None, count: int, capfd: pytest.CaptureFixture[str]
) -> None:
    jpeg = cv2.imencode(".jpg", make_image())[1].tobytes()
    for name, data in (("1", jpeg), ("2", half_of_the_data(jpeg)), ("3", jpeg)):
        (tmp_path / f"{name}.jpg").write_bytes(data)
    reader = ImagesReader(settings(tmp_path, on_damage=choice), MonotonicClock())
    frames, error = play(reader)
    assert len(frames) == count
    assert reader.damaged == 1
    assert (error is None) == (count > 1)
    if error is not None:
        assert "2.jpg: the image is damaged" in str(error)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_wrong_bytes_print_nothing(
    tmp_path: Path, ending: str, capfd: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(cv2.imencode(f".{ending}", make_image())[1].tobytes())
    del data[len(data) // 2 : len(data) // 2 + 400]
    (tmp_path / f"a.{ending}").write_bytes(data)
    with pytest.raises(SourceError, match=rf"a\.{ending}: "):
        ImagesReader(settings(tmp_path), MonotonicClock()).open()
    assert capfd.readouterr().err == ""


# What each of EXIF's orientations asks for, from the image as it is stored.
UPRIGHT: list[Callable[[Image], Image]] = [
    lambda image: image,
    lambda image: image[:, ::-1],
    lambda image: image[::-1, ::-1],
    lambda image: image[::-1],
    lambda image: image.swapaxes(0, 1),
    lambda image: image.swapaxes(0, 1)[:, ::-1],
    lambda image: image.swapaxes(0, 1)[::-1, ::-1],
    lambda image: image.swapaxes(0, 1)[::-1],
]


@pytest.mark.parametrize("ending", ["jpg", "png", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_upright_by_exif(tmp_path: Path, ending: str, orientation: int) -> None:
    exif = struct.pack("<4sIHHHIHHI", b"II*\0", 8, 1, 0x112, 3, 1, orientation, 0, 0)
    path, stored = str(tmp_path / f"a.{ending}"), make_image()
    metadata = [np.frombuffer(exif, np.uint8)]
    assert cv2.imwriteWithMetadata(path, stored, [cv2.IMAGE_METADATA_EXIF], metadata)
    ((frame,), error) = play(ImagesReader(settings(tmp_path), MonotonicClock()))
    expected = UPRIGHT[orientation - 1](stored)
    assert error is None
    assert frame.shape == expected.shape
    assert np.abs(frame.astype(int) - expected).mean() < 8


def test_an_image_that_announces_too_much_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), make_image())
    with pytest.raises(SourceError, match=r"a\.png: .*max_pixels \(10000\)"):
        ImagesReader(settings(tmp_path, max_pixels=10_000), MonotonicClock()).open()


def test_names_that_are_no_utf8_are_read(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9 #1"
    os.mkdir(folder)
    shown = os.fsdecode(folder)
    with open(folder + b"/\xff.png", "wb") as file:
        file.write(cv2.imencode(".png", make_image())[1].tobytes())
    frames, error = play(ImagesReader(settings(shown), MonotonicClock()))
    assert (len(frames), error) == (1, None)
