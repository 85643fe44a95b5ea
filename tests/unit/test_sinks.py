"""Sinks: what is written, and that what cannot be written is said early and by name."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt
import pytest
from pydantic import TypeAdapter

from pipeline.contracts import Sink, StreamInfo
from pipeline.errors import SinkError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.memory.results import Detections, FrameMapping, RawOutput, Result, Stamps
from pipeline.sinks import (
    ConsoleSettings,
    JsonlSettings,
    SinkSettings,
    VideoSettings,
    make_sink,
)
from pipeline.sinks.console import ConsoleSink
from pipeline.sinks.jsonl import JsonlSink
from pipeline.sinks.video import annotate

STREAM = StreamInfo("front", FrameFormat(64, 48, 12.5, 10))
STAMPS = Stamps(1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 12_346_000)
SINKS: TypeAdapter[Any] = TypeAdapter(SinkSettings)


def faces(count: int = 1, bad: float | None = None) -> Detections:
    boxes = np.array([(10.125, 5, 30.5, 40.999)] * count, np.float32).reshape(-1, 4)
    scores = np.full(count, 0.98768, np.float32)
    points = np.array([[(12.345, 20), (20, 21)]] * count, np.float32).reshape(-1, 2, 2)
    if bad is not None:
        boxes[0, 0] = scores[0] = points[0, 0, 0] = bad
    return Detections(boxes, scores, np.zeros(count, np.int32), points, ("face",))


def result(
    sequence: int = 0,
    detections: Detections | None = None,
    image: Image | None = None,
    outputs: tuple[RawOutput, ...] = (),
    camera: str = "front",
) -> Result:
    shown = np.zeros((48, 64, 3), np.uint8) if image is None else image
    shown.flags.writeable = False
    return Result(
        camera,
        sequence,
        STAMPS,
        faces() if detections is None else detections,
        FrameMapping(1, 1, 0, 0, 64, 48),
        lambda: shown,
        lambda: outputs,
    )


def sink_of(kind: str, path: Path | str, **more: Any) -> Sink:
    return make_sink(SINKS.validate_python({"kind": kind, "path": str(path), **more}))


def lines_of(path: Path) -> list[Any]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    text = path.read_text("utf-8")
    assert text == "" or text.endswith("\n")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """What a full disk looks like to those who write regular files."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


# --- console


def test_console_prints_a_line_for_each_result(capsys: pytest.CaptureFixture[str]) -> None:
    sink = make_sink(ConsoleSettings(kind="console"))
    sink.open(STREAM)
    sink.write(result(3))
    sink.write(result(4, Detections.empty()))
    sink.close()
    assert capsys.readouterr().out.splitlines() == [
        "front 3 12.3 ms 1 detections face 0.99 [10 5 30 41]",
        "front 4 12.3 ms 0 detections",
    ]


def test_console_tells_outputs() -> None:
    stream = io.StringIO()
    sink = ConsoleSink(ConsoleSettings(kind="console"), stream)
    sink.open(STREAM)
    output = RawOutput("scores", np.zeros((1, 5), np.float16))
    sink.write(result(0, Detections.empty(), outputs=(output,)))
    sink.close()
    assert stream.getvalue() == "front 0 12.3 ms scores float16 1x5\n"
    assert not stream.closed


def test_console_lines_stay_lines_whatever_names_hold() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    sink = ConsoleSink(ConsoleSettings(kind="console"), stream)
    sink.open(STREAM)
    sink.write(result(camera="a\nb\x1b[2Jcaf\u00e9"))
    assert raw.getvalue().startswith(rb"a\nb\x1b[2Jcaf? 0 ")
    assert raw.getvalue().count(b"\n") == 1


def test_console_that_cannot_be_written() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    sink = ConsoleSink(ConsoleSettings(kind="console"), stream)
    sink.open(STREAM)
    with pytest.raises(SinkError, match="console: cannot write: Broken pipe"):
        sink.write(result())
    sink.close()
    with pytest.raises(BrokenPipeError):
        stream.close()  # it still holds the line
    with pytest.raises(SinkError, match="is closed"):
        sink.open(STREAM)


# --- JSON Lines


def test_jsonl_writes_what_a_result_holds(tmp_path: Path) -> None:
    path = tmp_path / "made" / "for" / "it.jsonl"
    sink = sink_of("jsonl", path)
    sink.open(STREAM)
    for sequence in range(3):
        sink.write(result(sequence, faces(sequence)))
        assert len(lines_of(path)) == sequence + 1  # at once, not at the end
    sink.close()
    sink.close()
    lines = lines_of(path)
    assert lines[1] == {
        "camera": "front",
        "sequence": 1,
        "stamps": STAMPS._asdict(),
        "latency_ms": 12.345,
        "detections": [
            {
                "box": [10.12, 5.0, 30.5, 41.0],
                "score": 0.9877,
                "label": "face",
                "landmarks": [[12.35, 20.0], [20.0, 21.0]],
            }
        ],
    }
    assert lines[0]["detections"] == []


def test_jsonl_summarises_outputs(tmp_path: Path) -> None:
    arrays: dict[str, npt.NDArray[Any]] = {
        "f": np.array([[1.0, 2.0, 6.0]], np.float32),
        "h": np.array([60000, 60000], np.float16),
        "i": np.array([-3, 4], np.int8),
        "b": np.array([True, False]),
        "nan": np.array([np.nan, 1], np.float32),
        "inf": np.array([np.inf, -np.inf], np.float32),
        "none": np.zeros((0, 4), np.float32),
    }
    sink = sink_of("jsonl", tmp_path / "x.jsonl")
    sink.open(STREAM)
    outputs = tuple(RawOutput(name, array) for name, array in arrays.items())
    sink.write(result(0, Detections.empty(), outputs=outputs))
    sink.close()
    (line,) = lines_of(tmp_path / "x.jsonl")
    told = {o["name"]: (o["min"], o["max"], o["mean"]) for o in line["outputs"]}
    assert told == {
        "f": (1, 6, 3),
        "h": (60000, 60000, 60000),
        "i": (-3, 4, 0.5),
        "b": (0, 1, 0.5),
        "nan": (None, None, None),
        "inf": (None, None, None),
        "none": (None, None, None),
    }
    assert line["outputs"][0]["shape"] == [1, 3]
    assert line["outputs"][1]["dtype"] == "float16"
    assert "sha256" not in line["outputs"][0]


def test_jsonl_tells_every_element_by_a_digest(tmp_path: Path) -> None:
    whole = np.arange(12, dtype=np.float32).reshape(3, 4)
    arrays = [whole, whole.T, whole[:0], np.array(7, np.float32)]
    settings = JsonlSettings(kind="jsonl", path=str(tmp_path / "x.jsonl"), digest=True)
    sink = JsonlSink(settings)
    sink.open(STREAM)
    outputs = tuple(RawOutput(str(i), array) for i, array in enumerate(arrays))
    sink.write(result(0, Detections.empty(), outputs=outputs))
    sink.close()
    (line,) = lines_of(tmp_path / "x.jsonl")
    wanted = [hashlib.sha256(array.tobytes()).hexdigest() for array in arrays]
    assert [output["sha256"] for output in line["outputs"]] == wanted


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_jsonl_is_json_whatever_the_numbers(tmp_path: Path, bad: float) -> None:
    sink = sink_of("jsonl", tmp_path / "x.jsonl")
    sink.open(STREAM)
    sink.write(result(0, faces(2, bad), camera='quote " \n \ud800 ☃'))
    sink.close()
    (line,) = lines_of(tmp_path / "x.jsonl")
    broken, sound = line["detections"]
    assert (broken["box"][0], broken["score"], broken["landmarks"][0][0]) == (None, None, None)
    assert sound["box"][0] == 10.12
    assert line["camera"] == 'quote " \n \ud800 ☃'


def test_jsonl_keeps_whole_lines_when_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    sink = sink_of("jsonl", path)
    sink.open(STREAM)
    sink.write(result(0))
    room = path.stat().st_size * 2 + 10
    with files_no_larger_than(room):
        sink.write(result(1))
        with pytest.raises(
            SinkError, match=r"jsonl: .*x\.jsonl: cannot be written: File too large"
        ):
            sink.write(result(2))
    assert [line["sequence"] for line in lines_of(path)] == [0, 1]
    sink.write(result(3))  # there is room again
    sink.close()
    assert [line["sequence"] for line in lines_of(path)] == [0, 1, 3]


def test_jsonl_to_a_full_device() -> None:
    sink = sink_of("jsonl", "/dev/full")
    sink.open(STREAM)
    with pytest.raises(SinkError, match="jsonl: /dev/full: cannot be written: No space left"):
        sink.write(result())
    sink.close()


def test_jsonl_waits_for_the_reader_of_a_pipe_until_interrupted(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    sink = sink_of("jsonl", fifo)
    sink.open(STREAM)
    sink.begin()
    sink.interrupt()
    with pytest.raises(SinkError, match=r"jsonl: .*pipe: nobody reads this pipe"):
        sink.write(result(0))
    with open(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as reader:
        sink.write(result(1))
        assert json.loads(reader.readline())["sequence"] == 1
    with pytest.raises(SinkError, match="Broken pipe"):
        sink.write(result(2))
    sink.close()


def test_video_refuses_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mkv")
    with pytest.raises(SinkError, match=r"pipe\.mkv: is a pipe, needed a file"):
        sink_of("video", tmp_path / "pipe.mkv").open(STREAM)


def test_jsonl_to_standard_output_takes_off_only_its_own_part(tmp_path: Path) -> None:
    path = tmp_path / "log"
    program = """
import resource, signal, sys
sys.path[:0] = sys.argv[1:]
from test_sinks import STREAM, result, sink_of
from pipeline.errors import SinkError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
print("earlier")
sink = sink_of("jsonl", "-")
sink.open(STREAM)
try:
    for _ in range(100):
        sink.write(result())
except SinkError as error:
    assert "File too large" in str(error)
else:
    sys.exit("never full")
"""
    with path.open("ab") as log:
        log.write(b"before us\n")
        log.flush()
        command = [sys.executable, "-c", program, str(Path(__file__).parent), *sys.path]
        subprocess.run(command, stdout=log, check=True)
    before, earlier, *lines = path.read_text().splitlines()
    assert (before, earlier) == ("before us", "earlier")
    assert lines
    assert all(json.loads(line)["camera"] == "front" for line in lines)
    assert path.read_bytes().endswith(b"\n")


def test_jsonl_to_a_standard_output_that_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    with pytest.raises(SinkError, match="jsonl: -: standard output is not open"):
        sink_of("jsonl", "-").open(STREAM)


# --- video


def test_video_is_written_annotated(tmp_path: Path) -> None:
    path = tmp_path / "made" / "out.mp4"
    sink = sink_of("video", path)
    assert VideoSettings(kind="video", path="out.mp4").needs_image
    sink.open(STREAM)
    for sequence in range(10):
        sink.write(result(sequence, faces(), np.full((48, 64, 3), 20 * sequence, np.uint8)))
    sink.close()
    sink.close()
    capture = cv2.VideoCapture(str(path))
    assert capture.get(cv2.CAP_PROP_FPS) == pytest.approx(12.5)
    frames: list[Image] = []
    while (read := capture.read())[0]:
        frames.append(np.asarray(read[1], np.uint8))
    capture.release()
    assert [frame.shape for frame in frames] == [(48, 64, 3)] * 10
    for sequence, frame in enumerate(frames):
        assert abs(float(frame[44:, 45:].mean()) - 20 * sequence) < 12  # the frame, in order
    edge = frames[0][20:35, 29:32].astype(int)
    assert edge[..., 1].max() > 100  # the box, green


@pytest.mark.parametrize(
    ("given", "source", "expected"), [(5.0, 12.5, 5.0), (None, None, 30.0), (None, 29.97, 29.97)]
)
def test_video_rate(
    tmp_path: Path, given: float | None, source: float | None, expected: float
) -> None:
    sink = sink_of("video", tmp_path / "x.avi", fps=given, codec="MJPG")
    sink.open(StreamInfo("front", FrameFormat(64, 48, source)))
    sink.write(result())
    sink.close()
    capture = cv2.VideoCapture(str(tmp_path / "x.avi"))
    assert capture.get(cv2.CAP_PROP_FPS) == pytest.approx(expected, rel=1e-3)
    capture.release()


def test_video_of_odd_size(tmp_path: Path) -> None:
    sink = sink_of("video", tmp_path / "x.mp4")
    sink.open(StreamInfo("front", FrameFormat(65, 47, 10)))
    ramp = np.repeat(np.arange(65, dtype=np.uint8)[None, :, None] * 3, 47, 0).repeat(3, 2)
    sink.write(result(0, Detections.empty(), ramp))
    sink.close()
    capture = cv2.VideoCapture(str(tmp_path / "x.mp4"))
    ok, frame = capture.read()
    capture.release()
    assert ok
    assert frame.shape == (46, 64, 3)
    np.testing.assert_allclose(frame.astype(int), ramp[:46, :64], atol=16)  # not skewed


@pytest.mark.parametrize("known", [True, False])
def test_video_scales_frames_of_another_size(tmp_path: Path, known: bool) -> None:
    sink = sink_of("video", tmp_path / "x.mp4")
    with pytest.raises(SinkError, match="not open"):
        sink.write(result())
    sink.open(STREAM if known else StreamInfo("front", None))
    grey = np.full((48, 64, 3), 128, np.uint8)
    sink.write(result(0, Detections.empty(), grey))
    sink.write(result(1, Detections.empty(), np.full((2, 2, 3), 128, np.uint8)))
    sink.close()
    capture = cv2.VideoCapture(str(tmp_path / "x.mp4"))
    frames = [capture.read()[1] for _ in range(2)]
    capture.release()
    for frame in frames:
        assert frame.shape == grey.shape
        np.testing.assert_allclose(frame.astype(int), grey, atol=16)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("x.mp4", "ZZZZ"),
        ("x.webm", "mp4v"),
        ("x.ts", "VP80"),
    ],
)
def test_video_without_codec(tmp_path: Path, name: str, codec: str) -> None:
    with pytest.raises(SinkError, match=rf"{name}: no video of 64x48 .*codec '{codec}'"):
        sink_of("video", tmp_path / name, codec=codec).open(STREAM)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["x.unknown", "noending", "%03d.mp4x", ".mp4", "x.mp4/"])
def test_video_without_container(name: str) -> None:
    with pytest.raises(ValueError, match=r"needs an ending .*: \.mp4, \.mov, "):
        VideoSettings(kind="video", path=name)


@pytest.mark.parametrize("ending", ["mp4", "mov", "m4v", "mkv", "avi", "webm", "ts"])
@pytest.mark.parametrize("frames", [0, 1])
def test_a_video_may_end_at_once(tmp_path: Path, ending: str, frames: int) -> None:
    path = tmp_path / f"short.{ending}"
    sink = sink_of("video", path, codec="vp80" if ending == "webm" else "mp4v")
    sink.open(STREAM)
    for sequence in range(frames):
        sink.write(result(sequence, faces(), np.zeros((48, 64, 3), np.uint8)))
    sink.close()
    assert (path.stat().st_size > 0) == (frames > 0)


def frames_of(path: Path) -> int:
    with av.open(str(path)) as video:
        return sum(1 for _ in video.decode(video=0))


@pytest.mark.parametrize(
    ("ending", "codec"),
    [("mp4", "h264"), ("mov", "h264"), ("mkv", "h264"), ("avi", "mpeg4"), ("webm", "vp8")],
)
def test_the_codec_suits_the_ending(tmp_path: Path, ending: str, codec: str) -> None:
    path = tmp_path / f"out.{ending}"
    sink = sink_of("video", path)
    sink.open(STREAM)
    sink.write(result(0, faces(), np.zeros((48, 64, 3), np.uint8)))
    sink.close()
    with av.open(str(path)) as video:
        assert video.streams.video[0].codec_context.name == codec


@pytest.mark.parametrize("codec", ["mp4v", "avc1"])
@pytest.mark.parametrize(
    ("fps", "expected"),
    [(1e-5, 30), (1e6, 30), (math.inf, 30), (math.nan, 30), (0.5, 0.5), (119.88, 119.88)],
)
def test_odd_rates_become_sane(tmp_path: Path, codec: str, fps: float, expected: float) -> None:
    sink = sink_of("video", tmp_path / "out.mp4", codec=codec)
    sink.open(StreamInfo("front", FrameFormat(64, 48, fps)))
    for sequence in range(3):
        sink.write(result(sequence, faces(), np.zeros((48, 64, 3), np.uint8)))
    sink.close()
    assert frames_of(tmp_path / "out.mp4") == 3
    with av.open(str(tmp_path / "out.mp4")) as video:
        rate = video.streams.video[0].average_rate
        assert rate is not None
        assert float(rate) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("kind", ["video", "jsonl"])
def test_a_removed_folder_is_told_and_made_again(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.sinks.target._LOOK_SECONDS", 0.0)
    ending = {"video": "mp4", "jsonl": "jsonl"}[kind]
    sink = sink_of(kind, tmp_path / "made" / f"out.{ending}")
    sink.open(STREAM)
    frame = result(0, faces(), np.zeros((48, 64, 3), np.uint8))
    sink.write(frame)
    shutil.rmtree(tmp_path / "made")
    with pytest.raises(SinkError, match="was removed"):
        sink.write(frame)
    sink.write(frame)
    sink.write(frame)
    sink.close()
    if kind == "video":
        assert frames_of(tmp_path / "made" / "out.2.mp4") == 2
    else:
        assert len(lines_of(tmp_path / "made" / "out.jsonl")) == 2


def test_a_video_goes_on_in_a_new_part_after_an_error(tmp_path: Path) -> None:
    (tmp_path / "out.2.mkv").write_text("of somebody else")
    sink = sink_of("video", tmp_path / "out.mkv", codec="MJPG")
    sink.open(STREAM)
    noise = np.random.default_rng(1).integers(0, 255, (48, 64, 3), np.uint8)
    written = 0
    with files_no_larger_than(20_000):
        while True:
            try:
                sink.write(result(written, faces(), noise))
            except SinkError as error:
                assert "out.mkv: cannot be written" in str(error)  # noqa: PT017
                break
            written += 1
    for _ in range(5):
        sink.write(result(0, faces(), noise))
    sink.close()
    assert 0 < frames_of(tmp_path / "out.mkv") <= written
    assert frames_of(tmp_path / "out.3.mkv") == 5
    assert (tmp_path / "out.2.mkv").read_text() == "of somebody else"
    assert len(list(tmp_path.iterdir())) == 3


def test_video_to_a_full_disk_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sink = sink_of("video", tmp_path / "x.mp4")
    sink.open(STREAM)
    noise = np.random.default_rng(1)

    def fill() -> None:
        for _ in range(40):
            sink.write(result(image=noise.integers(0, 256, (48, 64, 3), np.uint8)))
        sink.close()

    with files_no_larger_than(4096), pytest.raises(SinkError, match="cannot be written: File too"):
        fill()
    sink.close()
    assert capfd.readouterr().err == ""


def luminance(color: npt.NDArray[np.uint8]) -> float:
    """Relative luminance of a BGR color, by the rules for readable web pages."""
    linear = (color / 255.0) ** 2.2
    return float(linear @ (0.0722, 0.7152, 0.2126))


@pytest.mark.parametrize("label", range(5))
def test_labels_can_be_read_at_any_size(label: int) -> None:
    heights = []
    for size in (320, 480, 720, 1080, 2160):
        canvas = np.full((size, size * 2, 3), 90, np.uint8)
        box = np.array([[size / 2, size / 2, size, size - 5]], np.float32)
        none = np.zeros((1, 0, 2), np.float32)
        labels = np.array([label], np.int32)
        names = tuple("abcdE")
        annotate(canvas, Detections(box, np.ones(1, np.float32), labels, none, names))
        above = canvas[: size // 2 - size // 360 - 1, size // 2 : size // 2 + size // 10]
        (rows,) = np.nonzero((above != 90).any((1, 2)))
        heights.append(len(rows) / size)
        assert above[rows, ...].min() < 30  # black, on a color that is bright enough for it
        assert (luminance(canvas[size * 3 // 4, size // 2]) + 0.05) / 0.05 > 4.5
    assert min(heights) > 0.02
    assert max(heights) < 0.06


def test_annotate_draws_inside_whatever_the_numbers() -> None:
    for bad in (np.nan, np.inf, -1e30, 1e30):
        canvas = np.zeros((48, 64, 3), np.uint8)
        annotate(canvas, faces(2, bad))
        assert canvas.any()
    canvas = np.zeros((1, 1, 3), np.uint8)
    annotate(canvas, faces())
    canvas = np.zeros((48, 64, 3), np.uint8)
    annotate(canvas, Detections.empty())
    assert not canvas.any()


# --- targets of both kinds


@pytest.mark.parametrize("kind", ["jsonl", "video"])
@pytest.mark.parametrize("stream", [STREAM, StreamInfo("", None)])
def test_an_older_file_gives_way_once_the_run_begins(
    tmp_path: Path, kind: str, stream: StreamInfo
) -> None:
    path = tmp_path / "x.mp4"
    path.write_text("old")
    sink = sink_of(kind, path)
    sink.open(stream)
    assert path.read_text() == "old"
    sink.begin()
    assert path.read_text() == ""
    sink.close()
    assert path.read_text() == ""


@pytest.mark.parametrize("kind", ["jsonl", "video"])
def test_targets_that_cannot_be_are_named_at_open(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder.mp4").mkdir()
    long = "n" * 300 + ".mp4"
    cases = {
        tmp_path / "folder.mp4": "is a folder, needed a file",
        tmp_path / "file" / "x.mp4": "file is not a folder",
        tmp_path / "file" / "deep" / "x.mp4": "cannot make its folder: Not a directory",
        Path("/proc/no/x.mp4"): "cannot make its folder: ",
        Path("/proc/x.mp4"): "cannot be written: ",
        tmp_path / long: "cannot be written: File name too long",
    }
    for path, told in cases.items():
        with pytest.raises(SinkError) as caught:
            sink_of(kind, path).open(STREAM)
        assert str(caught.value).startswith(f"{kind}: {path}: ")
        assert told in str(caught.value)
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "jsonl"},
        {"kind": "jsonl", "path": ""},
        {"kind": "jsonl", "path": "a\0b"},
        {"kind": "video", "path": "a\nb.mp4"},
        {"kind": "video", "path": "-"},
        {"kind": "video", "path": "x"},
        {"kind": "video", "path": "x.mp4", "codec": "mp4"},
        {"kind": "video", "path": "x.mp4", "codec": "mp4\u00e9"},
        {"kind": "video", "path": "x.mp4", "fps": 1e-9},
        {"kind": "console", "path": "x"},
        {"kind": "console", "queue": 0},
        {"kind": "console", "overflow": "latest"},
        {"kind": "fax"},
        {},
    ],
)
def test_bad_settings(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        SINKS.validate_python(bad)


def test_settings_are_told_apart_by_kind() -> None:
    found = [
        SINKS.validate_python({"kind": "console"}),
        SINKS.validate_python({"kind": "jsonl", "path": "x", "overflow": "drop_newest"}),
        SINKS.validate_python({"kind": "video", "path": "x.MKV", "queue": 2}),
    ]
    assert [type(s) for s in found] == [ConsoleSettings, JsonlSettings, VideoSettings]
