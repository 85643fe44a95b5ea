"""Files through PyAV: frames, rate and stamps as OpenCV tells them, damage and turned frames."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import av
import cv2
import numpy as np
import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import FormatChangedError, SourceError
from pipeline.memory.frame import Image
from pipeline.sources.file import FileReader
from pipeline.sources.opencv_reader import OpenCVCapture
from pipeline.sources.pyav_file import PyAVFile
from pipeline.sources.pyav_frames import open_container
from pipeline.sources.synthetic import synthetic_frame
from pipeline.sources.videoio import ffmpeg_backend
from tests.unit.playing import assert_alike, play, settings

pytestmark = pytest.mark.usefixtures("small_planes")

Make = Callable[..., str]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a clip of 20 frames, MPEG-4 with B-frames unless told otherwise."""

    def write(name: str = "clip.mp4", **more: Any) -> str:
        width, height = more.get("size", (64, 48))
        path = str(tmp_path / name)
        with av.open(path, "w") as file:
            stream = cast("av.VideoStream", file.add_stream(more.get("codec", "mpeg4"), rate=25))
            stream.width, stream.height = width, height
            file.metadata["title"] = more.get("title", "")
            stream.pix_fmt = more.get("pixels", "yuv420p")
            stream.codec_context.max_b_frames = more.get("b_frames", 2)
            if "rotation" in more:
                stream.set_display_rotation(more["rotation"])
            for number in range(20):
                image = synthetic_frame(number, width, height)
                frame = av.VideoFrame.from_ndarray(image, format="bgr24")
                frame.time_base = Fraction(1, 25)
                frame.pts = more.get("start", 0) + number + (7 if number > 9 else 0)
                file.mux(stream.encode(frame))
            file.mux(stream.encode())
        return path

    return write


def opened(path: str, threads: int = 2) -> PyAVFile:
    return PyAVFile(open_container(path), "clip", threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("clip.mp4", {}),
        ("clip.mp4", {"start": 50}),
        ("clip.mkv", {}),
        ("clip.avi", {"b_frames": 0}),
        ("clip.ts", {"start": 50, "codec": "mpeg2video"}),
        ("clip.avi", {"codec": "mjpeg", "pixels": "yuvj420p", "b_frames": 0}),
    ],
)
def test_frames_rate_and_stamps_are_those_that_opencv_tells(
    make: Make, name: str, more: dict[str, Any], threads: int
) -> None:
    path = make(name, **more)
    movie, capture = opened(path, threads), OpenCVCapture(path, ffmpeg_backend(), "clip")
    ours, theirs = movie.frame_format(), capture.frame_format()
    assert ours.pixels == "i420"
    assert ours.full_range == (more.get("codec") == "mjpeg")
    assert ours[:4] == theirs[:4]
    for turn in range(2):
        stamps = []
        while capture.grab():
            assert movie.grab()
            stamps.append((movie.position_ns(), capture.position_ns()))
        assert not movie.grab()
        assert not movie.grab()
        assert len(stamps) >= 20
        assert max(abs(one - other) for one, other in stamps) <= 2
        if turn == 0 and name != "clip.ts":
            assert movie.rewind()
            assert capture.rewind()
        elif turn == 0:
            break
    movie.close()
    capture.close()


@pytest.mark.parametrize(
    "more",
    [
        {"size": (63, 48)},
        {"codec": "mjpeg", "pixels": "yuvj422p", "b_frames": 0},
        {"codec": "png", "pixels": "rgb24", "b_frames": 0, "name": "clip.mov"},
    ],
)
def test_what_has_no_planes_is_read_as_bgr(make: Make, more: dict[str, Any]) -> None:
    path = make(**more)
    ours, _ = play(FileReader(settings(path), MonotonicClock()))
    capture = OpenCVCapture(path, ffmpeg_backend(), "clip")
    theirs = np.zeros(capture.frame_format().shape, np.uint8)
    for frame in ours:
        assert capture.grab()
        capture.retrieve(theirs)
        assert_alike(frame, theirs)
    assert len(ours) == 20
    capture.close()


# x' = a x + c y and y' = b x + d y, with y downwards, as (a, b, c, d).
TURNS: dict[tuple[int, int, int, int], Callable[[Image], Image]] = {
    (1, 0, 0, 1): lambda image: image,
    (-1, 0, 0, 1): lambda image: image[:, ::-1],
    (1, 0, 0, -1): lambda image: image[::-1],
    (-1, 0, 0, -1): lambda image: image[::-1, ::-1],
    (0, 1, 1, 0): lambda image: image.swapaxes(0, 1),
    (0, 1, -1, 0): lambda image: image.swapaxes(0, 1)[:, ::-1],
    (0, -1, 1, 0): lambda image: image.swapaxes(0, 1)[::-1],
    (0, -1, -1, 0): lambda image: image.swapaxes(0, 1)[::-1, ::-1],
}


def turned(path: str, turn: tuple[int, int, int, int]) -> str:
    """The clip with this matrix in its track's header."""
    data = Path(path).read_bytes()
    upright = struct.pack(">9i", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
    at = data.index(upright, data.index(b"tkhd"))
    a, b, c, d = (each << 16 for each in turn)
    matrix = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    target = Path(path).with_name("turned.mp4")
    target.write_bytes(data[:at] + matrix + data[at + len(matrix) :])
    return str(target)


@pytest.mark.parametrize("pixels", ["auto", "bgr"])
@pytest.mark.parametrize("turn", TURNS)
def test_turned_and_mirrored_clips_are_delivered_upright(
    make: Make, turn: tuple[int, int, int, int], pixels: str
) -> None:
    path = make()
    lying, _ = play(FileReader(settings(path, pixels=pixels), MonotonicClock()))
    upright, error = play(FileReader(settings(turned(path, turn), pixels=pixels), MonotonicClock()))
    assert error is None
    assert len(upright) == len(lying) == 20
    for one, other in zip(upright, lying, strict=True):
        np.testing.assert_array_equal(one, TURNS[turn](other))


def test_a_clip_that_tilts_is_left_as_it_lies(make: Make) -> None:
    path = make(rotation=10)
    assert opened(path).frame_format()[:2] == (64, 48)


def test_what_one_wrong_byte_damages_is_counted_and_by_choice_dropped_or_refused(
    make: Make,
) -> None:
    path = Path(make(size=(320, 240), b_frames=0))
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 2, len(data) // 2 + 40):
        data[at] ^= 0x55
    path.write_bytes(data)
    counts = {}
    for choice in ("count", "drop", "fail"):
        reader = FileReader(settings(path, on_damage=choice), MonotonicClock())
        frames, error = play(reader)
        counts[choice] = len(frames)
        assert reader.damaged >= 1
        assert (error is None) == (choice != "fail")
        if choice == "drop":
            assert len(frames) == 20 - reader.damaged
    assert counts["count"] == 20
    assert counts["fail"] < counts["drop"] < 20
    assert "clip.mp4: a frame is damaged" in str(error)


def test_without_pyav_files_are_read_by_opencv(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    for name in ("movie", "frames"):
        monkeypatch.delitem(sys.modules, f"pipeline.sources.{name}", raising=False)
    reader = FileReader(settings(make()), MonotonicClock())
    assert reader.open().pixels == "bgr"
    reader.close()


def write_sound(file: Any) -> None:
    stream = file.add_stream("pcm_s16le", rate=8000, layout="mono")
    frame = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.int16), "s16", "mono")
    frame.sample_rate = 8000
    file.mux(stream.encode(frame))
    file.mux(stream.encode())


def test_a_sound_is_no_video_and_its_cover_is_none_either(tmp_path: Path) -> None:
    for name in ("sound.wav", "cover.mkv"):
        path = str(tmp_path / name)
        with av.open(path, "w") as file:
            if name == "cover.mkv":
                ok, png = cv2.imencode(".png", np.zeros((8, 8, 3), np.uint8))
                assert ok
                file.add_attachment("cover.png", "image/png", png.tobytes())
            write_sound(file)
        with pytest.raises(SourceError, match=rf"{name}: there is no video in it"):
            FileReader(settings(path), MonotonicClock()).open()


@pytest.mark.parametrize(
    ("name", "sound"), [("a.mkv", "pcm_s16le"), ("a.ts", "mp2"), ("a.mp4", "aac"), ("a.avi", "mp2")]
)
def test_a_sound_that_lasts_longer_is_no_damage(
    tmp_path: Path, name: str, sound: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / name
    with av.open(str(path), "w") as file:
        images = file.add_stream("mpeg4", rate=25)
        images.width, images.height, images.pix_fmt = 64, 48, "yuv420p"
        tone = cast("av.AudioStream", file.add_stream(sound, rate=48000, layout="mono"))
        for number in range(20):
            image = synthetic_frame(number, 64, 48)
            file.mux(images.encode(av.VideoFrame.from_ndarray(image, format="bgr24")))
        file.mux(images.encode())
        for number in range(100):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 960), np.int16), "s16", "mono")
            frame.sample_rate, frame.pts = 48000, 960 * number
            file.mux(tone.encode(frame))
        file.mux(tone.encode())
    assert_plays_whole(path, 20, caplog)


def assert_plays_whole(path: Path, frames: int, caplog: pytest.LogCaptureFixture) -> None:
    """All frames come, without an error or a warning, and again where the file is looped."""
    reader = FileReader(settings(path), MonotonicClock())
    played, error = play(reader)
    assert (len(played), error, reader.damaged) == (frames, None, 0)
    played, error = play(FileReader(settings(path, loop=True), MonotonicClock()), 3 * frames)
    assert (len(played), error) == (3 * frames, None)
    assert caplog.text == ""


def test_images_far_apart_are_no_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "sparse.mkv"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(12):
            frame = av.VideoFrame.from_ndarray(synthetic_frame(number, 64, 48), format="bgr24")
            frame.time_base, frame.pts = Fraction(1, 30), 10 * number
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    assert_plays_whole(path, 12, caplog)


def test_a_title_need_not_be_utf8(make: Make) -> None:
    path = Path(make("clip.mkv", title="Q" * 8))
    content = path.read_bytes()
    assert content.count(b"Q" * 8) == 1
    path.write_bytes(content.replace(b"Q" * 8, b"caf\xe9 \xff\xfeQ"))
    movie = opened(str(path))
    assert movie.frame_format()[:2] == (64, 48)
    movie.close()


def test_a_new_size_inside_a_file_is_told(tmp_path: Path) -> None:
    parts = []
    for width in (64, 96):
        path = tmp_path / f"{width}.m2v"
        with av.open(str(path), "w", format="mpeg2video") as file:
            stream = file.add_stream("mpeg2video", rate=25)
            stream.width, stream.height, stream.pix_fmt = width, 48, "yuv420p"
            for number in range(6):
                image = synthetic_frame(number, width, 48)
                file.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="bgr24")))
            file.mux(stream.encode())
        parts.append(path.read_bytes())
    both = tmp_path / "both.m2v"
    both.write_bytes(b"".join(parts))
    movie = opened(str(both), 1)
    buffer = np.zeros(movie.frame_format().shape, np.uint8)
    changes, frames = [], 0
    while movie.grab():
        try:
            movie.retrieve(buffer)
            frames += 1
        except FormatChangedError as change:
            changes.append(change.format[:2])
            buffer = np.zeros(change.format.shape, np.uint8)
    movie.close()
    assert changes == [(96, 48)]
    assert frames >= 10  # the decoder itself drops one where the size changes


def test_wrong_use_is_named(make: Make) -> None:
    movie = opened(make())
    with pytest.raises(SourceError, match="clip: nothing was grabbed"):
        movie.retrieve(np.zeros((72, 64), np.uint8))
    movie.close()
    movie.close()
    with pytest.raises(SourceError, match="clip: not open"):
        movie.grab()
