"""Streams by URL or GStreamer pipeline: what is delivered, and how their end is told."""

from __future__ import annotations

import socket
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import av
import cv2
import pytest

from pipeline.clock import MonotonicClock
from pipeline.contracts import Reader
from pipeline.errors import SourceError
from pipeline.memory.frame import Image
from pipeline.sources import SourceSettings, make_reader
from pipeline.sources.gstreamer import GstreamerReader
from pipeline.sources.http_source import HttpReader
from tests.folder_server import folder_server
from tests.servers.raw import RawServer
from tests.unit.playing import CLIP, WATCHDOG, assert_alike, play, settings
from tests.waiting import becomes


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


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    with folder_server(tmp_path) as address:
        yield address


def test_a_file_by_url_is_a_file_once_that_is_known(
    web: str, streamable: bytes, decoded: list[Image], tmp_path: Path
) -> None:
    (tmp_path / "clip.mp4").write_bytes(streamable)
    reader = make_reader(settings(f"{web}/clip.mp4"), MonotonicClock())
    assert isinstance(reader, HttpReader)
    assert reader.live
    frames, error = play(reader)
    assert not reader.live
    assert (len(frames), error) == (120, None)
    for frame, expected in zip(frames, decoded, strict=True):
        assert_alike(frame, expected)


@pytest.mark.parametrize("name", ["clip.mkv", "clip.ts", "list.m3u8", "joined.m3u8"])
def test_the_last_images_that_the_decoder_holds_come_too(
    web: str, tmp_path: Path, name: str
) -> None:
    copy_clip(tmp_path / name.replace("joined", "list"))
    expected = 120
    if name == "joined.m3u8":
        text, expected = (tmp_path / "list.m3u8").read_text(), 240
        part = text[text.index("#EXTINF") : text.index("#EXT-X-ENDLIST")]
        (tmp_path / name).write_text(text.replace(part, part + "#EXT-X-DISCONTINUITY\n" + part))
    frames, error = play(make_reader(settings(f"{web}/{name}"), MonotonicClock()))
    assert (len(frames), error) == (expected, None)


def test_a_live_list_loses_nothing_where_its_parts_join(web: str, tmp_path: Path) -> None:
    copy_clip(tmp_path / "list.m3u8")
    text = (tmp_path / "list.m3u8").read_text().replace("#EXT-X-ENDLIST\n", "")
    part = text[text.index("#EXTINF") :]
    (tmp_path / "list.m3u8").write_text(text + 2 * ("#EXT-X-DISCONTINUITY\n" + part))
    given = settings(f"{web}/list.m3u8", live=True)
    frames, error = play(make_reader(given, MonotonicClock()), 2 * 120 + 100)
    assert (len(frames), error) == (340, None)


def copy_clip(target: Path) -> None:
    """The clip's packets in another container."""
    options = {"hls_time": "1", "hls_list_size": "0"} if target.suffix == ".m3u8" else {}
    with av.open(CLIP) as clip, av.open(str(target), "w", options=options) as file:
        stream = file.add_stream_from_template(clip.streams.video[0])
        for packet in clip.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                file.mux(packet)


def test_whether_a_url_has_an_end_can_be_said(web: str, streamable: bytes, tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(streamable)
    camera = make_reader(settings(f"{web}/clip.mp4", live=True), MonotonicClock())
    camera.open()
    assert camera.live
    camera.close()
    known = make_reader(settings(f"{web}/clip.mp4", live=False), MonotonicClock())
    frames, error = play(known)
    assert (known.live, len(frames), error) == (False, 120, None)


def test_a_file_by_url_that_is_cut_is_an_error(
    web: str, streamable: bytes, decoded: list[Image], tmp_path: Path
) -> None:
    (tmp_path / "clip.mp4").write_bytes(streamable[:200_000])
    frames, error = play(make_reader(settings(f"{web}/clip.mp4"), MonotonicClock()))
    assert len(frames) > 30
    for frame, expected in zip(frames[:30], decoded, strict=False):
        assert_alike(frame, expected)
    assert f"it broke off after {len(frames)} frames" in str(error)


def test_a_stop_is_heard_while_nobody_sends_over_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    told = []

    def read(reader: Reader) -> None:
        with pytest.raises(SourceError) as caught:
            reader.open()
        told.append(str(caught.value))

    given = settings(f"udp://127.0.0.1:{port}", open_timeout_s=10 * WATCHDOG)
    reader = make_reader(given, MonotonicClock())
    opening = threading.Thread(target=read, args=(reader,), daemon=True)
    opening.start()
    reader.interrupt()
    opening.join(WATCHDOG)
    assert told
    assert told[0].endswith("interrupted")
    read(make_reader(settings(f"udp://127.0.0.1:{port}", open_timeout_s=0.1), MonotonicClock()))
    assert told[1].endswith("nothing came within 0.1 s")


class Playing:
    """Plays a source in a thread of its own until it ends."""

    def __init__(self, given: SourceSettings) -> None:
        self._reader = make_reader(given, MonotonicClock())
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()
        self.grabbed = 0
        self.error: SourceError | None = None

    def _play(self) -> None:
        try:
            self._reader.open()
            while self._reader.grab() is not None:
                self.grabbed += 1
        except SourceError as error:
            self.error = error
        finally:
            self._reader.close()

    def stop(self) -> float:
        """Seconds that it takes."""
        began = time.monotonic()
        self._reader.interrupt()
        self._thread.join(WATCHDOG)
        assert not self._thread.is_alive()
        return time.monotonic() - began


@pytest.mark.parametrize("scheme", ["http", "https", "rtsp", "rtsps", "tcp"])
def test_a_stop_is_heard_while_a_server_says_nothing(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/live"
        playing = Playing(settings(uri, open_timeout_s=10 * WATCHDOG))
        link, _ = silent.accept()
        with link:
            if scheme != "tcp":
                assert link.recv(1)  # it has asked
            assert playing.stop() < 1
        assert playing.error is not None


@pytest.mark.parametrize("live", [True, False])
def test_a_stop_is_heard_while_a_server_stalls_over_tcp(live: bool, stalling: str) -> None:
    playing = Playing(settings(stalling, live=live, read_timeout_s=10 * WATCHDOG))
    assert becomes(lambda: playing.grabbed > 20)
    assert playing.stop() < 1
    assert playing.error is None


@pytest.fixture
def stalling(tmp_path: Path) -> Iterator[str]:
    """A server that goes silent in the middle of the clip."""
    copy_clip(tmp_path / "clip.ts")

    def answer(link: socket.socket) -> None:
        link.sendall((tmp_path / "clip.ts").read_bytes()[:400_000])
        link.recv(1)

    with RawServer(answer) as server:
        yield f"tcp://127.0.0.1:{server.port}"


@pytest.mark.parametrize(
    ("live", "told"), [(True, "no whole frame came for 0.2 s"), (False, "nothing came in time")]
)
def test_a_stream_over_tcp_that_stalls_is_lost(live: bool, told: str, stalling: str) -> None:
    given = settings(stalling, live=live, read_timeout_s=0.2)
    frames, error = play(make_reader(given, MonotonicClock()))
    assert len(frames) > 20
    assert told in str(error)


def test_the_first_connection_over_rtmp_is_the_one_that_is_used() -> None:
    """Some senders take one only."""
    seen: list[int] = []

    def answer(link: socket.socket) -> None:
        with link.makefile("rb") as file:
            hello = file.read(1537)
            seen.append(len(hello))
            link.sendall(b"\x03" + bytes(1536) + hello[1:])
            seen.append(len(file.read(1537)))  # the hello in return, and what follows

    with RawServer(answer) as server:
        uri = f"rtmp://127.0.0.1:{server.port}/live/camera"
        with pytest.raises(SourceError):
            make_reader(settings(uri), MonotonicClock()).open()
    assert seen == [1537, 1537]


def test_a_file_over_tcp_is_played_to_its_end(tmp_path: Path) -> None:
    copy_clip(tmp_path / "clip.ts")
    with RawServer(lambda link: link.sendall((tmp_path / "clip.ts").read_bytes())) as server:
        given = settings(f"tcp://127.0.0.1:{server.port}", live=False)
        frames, error = play(make_reader(given, MonotonicClock()))
    assert (len(frames), error) == (120, None)


@pytest.mark.parametrize("scheme", ["http", "https", "rtsp", "rtsps", "rtmp", "rtmps", "tcp"])
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
