"""Streams by URL or GStreamer pipeline: what is delivered, and how their end is told."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import SourceError
from pipeline.frame import Image
from pipeline.sources import make_reader
from pipeline.sources.download import HttpReader
from pipeline.sources.gstreamer import GstreamerReader
from pipeline.sources.stream import StreamReader

if TYPE_CHECKING:
    from tests.unit.playing import WATCHDOG, assert_alike, play, settings
else:
    from playing import WATCHDOG, assert_alike, play, settings


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
