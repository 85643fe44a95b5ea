"""What is told of video files that are cut, damaged, absent or none at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import cv2
import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import SourceError
from pipeline.memory.frame import Image
from pipeline.sources import make_reader
from pipeline.sources.containers import inspect
from pipeline.sources.file import FileReader
from pipeline.sources.synthetic import synthetic_frame
from tests.unit.playing import CLIP, assert_alike, play, settings


@pytest.fixture
def clip_of(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(data: bytes) -> Path:
        path = tmp_path / "clip.mp4"
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize(("cut", "least"), [(20_000, 1), (200_000, 35), (400_000, 77), (-1, 118)])
@pytest.mark.usefixtures("either")
def test_a_cut_file_delivers_what_is_there_then_says_so(
    streamable: bytes,
    clip_of: Callable[[bytes], Path],
    decoded: list[Image],
    cut: int,
    least: int,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = clip_of(streamable[:cut])
    frames, error = play(FileReader(settings(path), MonotonicClock()))
    assert least <= len(frames) < 120
    for frame, expected in zip(frames[: least - 1], decoded, strict=False):
        assert_alike(frame, expected)
    assert f"clip.mp4: {len(frames)} of 120 frames could be decoded; the file is cut off" in str(
        error
    )
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("either")
def test_a_looped_cut_file_says_so_after_its_first_pass(
    streamable: bytes, clip_of: Callable[[bytes], Path]
) -> None:
    path = clip_of(streamable[:200_000])
    frames, error = play(FileReader(settings(path, loop=True), MonotonicClock()))
    assert 0 < len(frames) < 120
    assert "cut off" in str(error)


@pytest.mark.usefixtures("either")
def test_a_file_cut_before_its_first_frame(
    streamable: bytes, clip_of: Callable[[bytes], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    path = clip_of(streamable[:3000])
    with pytest.raises(SourceError, match=r"clip\.mp4: no frame of it can be decoded"):
        raise play(FileReader(settings(path), MonotonicClock()))[1] or AssertionError
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("cut", [100, 1000, 300_000, 586_570])
@pytest.mark.usefixtures("either")
def test_a_file_whose_index_was_cut_away_cannot_be_opened(
    clip_of: Callable[[bytes], Path], cut: int, capfd: pytest.CaptureFixture[str]
) -> None:
    path = clip_of(Path(CLIP).read_bytes()[:cut])
    with pytest.raises(SourceError, match=r"clip\.mp4: the file is cut off and its index"):
        FileReader(settings(path), MonotonicClock()).open()
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("either")
def test_bytes_missing_that_cost_no_frame_are_no_error(clip_of: Callable[[bytes], Path]) -> None:
    path = clip_of(Path(CLIP).read_bytes()[:-1])
    assert inspect(str(path)).cut is True
    frames, error = play(FileReader(settings(path), MonotonicClock()))
    assert (len(frames), error) == (120, None)


@pytest.mark.usefixtures("either")
def test_junk_behind_a_file_is_no_error(
    streamable: bytes, clip_of: Callable[[bytes], Path]
) -> None:
    frames, error = play(FileReader(settings(clip_of(streamable + b"junk")), MonotonicClock()))
    assert (len(frames), error) == (120, None)


def test_an_emptied_second_half_is_damage_and_no_end(
    streamable: bytes, clip_of: Callable[[bytes], Path]
) -> None:
    half = len(streamable) // 2
    path = clip_of(streamable[:half] + bytes(len(streamable) - half))
    frames, error = play(FileReader(settings(path), MonotonicClock()))
    assert 40 < len(frames) < 80
    assert f"{len(frames)} of 120 frames could be decoded; the file is damaged" in str(error)


def test_a_small_damage_is_passed_over_and_logged(
    streamable: bytes, clip_of: Callable[[bytes], Path], caplog: pytest.LogCaptureFixture
) -> None:
    junk = random.Random(1).randbytes(20_000)
    path = clip_of(streamable[:300_000] + junk + streamable[320_000:])
    frames, error = play(FileReader(settings(path), MonotonicClock()))
    assert error is None
    assert 108 < len(frames) < 120
    assert f"{len(frames)} of 120 frames could be decoded" in caplog.text


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("clip.mp4", b"", "the file is empty"),
        ("clip.mp4", b"some words\n" * 50, "not a video file"),
        ("notes.txt", b"some words\n" * 500, "text file|not a video file"),
        ("clip.mp4", bytes(5000), "not a video file"),
        ("clip.avi", random.Random(2).randbytes(5000), "not a video file"),
    ],
)
@pytest.mark.usefixtures("either")
def test_what_is_no_video_is_refused_quietly(
    tmp_path: Path, name: str, data: bytes, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(SourceError, match=rf"{name}: .*({told})"):
        FileReader(settings(path), MonotonicClock()).open()
    assert capfd.readouterr().err == ""


def test_absent_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nowhere\.mp4: no such file"):
        make_reader(settings(tmp_path / "nowhere.mp4"), MonotonicClock()).open()
    with pytest.raises(SourceError, match="not a regular file"):
        FileReader(settings(tmp_path), MonotonicClock()).open()


@pytest.mark.parametrize(("ending", "codec"), [("avi", "MJPG"), ("mkv", "MJPG"), ("mp4", "mp4v")])
@pytest.mark.usefixtures("either")
def test_containers_tell_whether_they_are_whole(tmp_path: Path, ending: str, codec: str) -> None:
    path = tmp_path / f"made.{ending}"
    fourcc = cv2.VideoWriter.fourcc(*codec)
    writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, fourcc, 25, (64, 48))
    for number in range(50):
        writer.write(synthetic_frame(number, 64, 48))
    writer.release()
    whole = inspect(str(path))
    assert whole.cut is False
    frames, error = play(FileReader(settings(path), MonotonicClock()))
    assert (len(frames), error) == (50, None)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert inspect(str(path)).cut is True
    if ending != "mp4":
        frames, error = play(FileReader(settings(path), MonotonicClock()))
        assert 10 < len(frames) < 40
        assert "the file is cut off" in str(error)


def test_inspect_never_raises(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert inspect(str(path)).cut is None
    heads = (b"", b"\x00\x00\x00\x08ftyp", b"RIFF", b"\x1a\x45\xdf\xa3", b"\x1a\x45\xdf\xa3\x01")
    for head in heads:
        for tail in (b"", b"\x00", b"\x00\x00\x00\x01mdat", b"\x00\x00\x00\x02moov"):
            path.write_bytes(head + tail)
            inspect(str(path))
