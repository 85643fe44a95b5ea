"""Files through PyAV: what OpenCV would tell of them, and what is left to OpenCV."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import av
import numpy as np
import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import FormatChangedError, SourceError
from pipeline.sources import SourceSettings
from pipeline.sources.capture import Capture
from pipeline.sources.file import FileReader
from pipeline.sources.movie import Movie, open_movie
from pipeline.sources.synthetic import synthetic_frame
from pipeline.sources.videoio import ffmpeg_backend

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


def opened(path: str, threads: int = 2) -> Movie:
    movie = open_movie(path, "clip", threads)
    assert movie is not None
    return movie


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
    movie, capture = opened(path, threads), Capture(path, ffmpeg_backend(), "clip")
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
        {"rotation": 90},
        {"size": (63, 48)},
        {"codec": "mjpeg", "pixels": "yuvj422p", "b_frames": 0},
        {"codec": "png", "pixels": "rgb24", "b_frames": 0, "name": "clip.mov"},
    ],
)
def test_what_has_no_planes_or_lies_on_its_side_is_left_to_opencv(
    make: Make, more: dict[str, Any]
) -> None:
    path = make(**more)
    assert open_movie(path, "clip", 2) is None
    reader = FileReader(SourceSettings(uri=path), MonotonicClock())
    form = reader.open()
    assert form.pixels == "bgr"
    assert form[:2] == ((48, 64) if "rotation" in more else more.get("size", (64, 48)))
    buffer = np.zeros(form.shape, np.uint8)
    assert reader.grab() is not None
    reader.retrieve(buffer)
    assert buffer.any()
    reader.close()


def test_with_pixels_bgr_files_are_read_by_opencv(make: Make) -> None:
    reader = FileReader(SourceSettings(uri=make(), pixels="bgr"), MonotonicClock())
    assert reader.open().pixels == "bgr"
    reader.close()


def test_without_pyav_files_are_read_by_opencv(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    for name in ("movie", "pictures"):
        monkeypatch.delitem(sys.modules, f"pipeline.sources.{name}", raising=False)
    reader = FileReader(SourceSettings(uri=make()), MonotonicClock())
    assert reader.open().pixels == "bgr"
    reader.close()


def test_a_sound_without_pictures_and_text_are_left_to_opencv(tmp_path: Path) -> None:
    sound = tmp_path / "sound.wav"
    with av.open(str(sound), "w") as file:
        stream = file.add_stream("pcm_s16le", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), "s16", "mono")
        frame.sample_rate = 8000
        file.mux(stream.encode(frame))
        file.mux(stream.encode())
    text = tmp_path / "notes.txt"
    text.write_text("some words\n" * 500)
    for path in (sound, text):
        assert open_movie(str(path), "clip", 1) is None


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
