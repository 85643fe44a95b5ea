"""Real streams over loopback: they arrive whole and in order, and the servers do as told."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import cv2
import numpy as np
import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import SourceError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.sources import SourceSettings, make_reader
from tests.buffers import Buffer
from tests.servers import (
    HlsServer,
    MjpegServer,
    RtspServer,
    Server,
    ServerError,
    TroubleProxy,
    gstreamer_missing,
    read_number,
)
from tests.servers.numbered import MODULUS, luma
from tests.waiting import becomes

WATCHDOG = 30.0  # seconds until a hang is a failure; nothing waits for it otherwise
SERVERS = Path(sys.modules[Server.__module__].__file__ or "").parent

pytestmark = pytest.mark.usefixtures("small_planes")

needs_gstreamer = pytest.mark.skipif(
    gstreamer_missing() is not None, reason=gstreamer_missing() or "installed"
)
EVERY_KIND = [
    pytest.param(RtspServer, {"transport": "tcp"}, id="rtsp-tcp", marks=needs_gstreamer),
    pytest.param(RtspServer, {"transport": "udp"}, id="rtsp-udp", marks=needs_gstreamer),
    pytest.param(RtspServer, {"user": "me", "password": "pw"}, id="rtsp-pw", marks=needs_gstreamer),
    pytest.param(HlsServer, {}, id="hls", marks=needs_gstreamer),
    pytest.param(MjpegServer, {}, id="mjpeg"),
    pytest.param(MjpegServer, {"lengths": False}, id="mjpeg-without-lengths"),
    pytest.param(MjpegServer, {"user": "me", "password": "pw"}, id="mjpeg-pw"),
]


@contextlib.contextmanager
def reading(url: str, **more: Any) -> Iterator[tuple[FrameFormat, Callable[[], Image]]]:
    """The format of a stream, and a call for its next frame; it lives until the one after."""
    reader = make_reader(SourceSettings(uri=url, **more), MonotonicClock())
    form = reader.open()
    buffer = Buffer(form)

    def following() -> Image:
        assert reader.grab() is not None
        return buffer.retrieve(reader)

    try:
        yield form, following
    finally:
        reader.close()


def numbers(following: Callable[[], Image], count: int) -> list[int]:
    found = [read_number(following()) for _ in range(count)]
    assert None not in found, f"frames without a readable number: {found}"
    return [number for number in found if number is not None]


def refused(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def state(pid: int) -> str:
    """The kernel's letter for the state of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


# --- through the readers


@pytest.mark.parametrize(("kind", "behaviour"), EVERY_KIND)
def test_frames_of_a_live_stream_arrive_readable_and_in_order(
    kind: Callable[..., Server], behaviour: dict[str, Any]
) -> None:
    more = {key: behaviour[key] for key in ("transport",) if key in behaviour}
    with kind(**behaviour) as server, reading(server.url, **more) as (form, following):
        assert (form.width, form.height) == (320, 240)
        found = numbers(following, 25)
        assert all(earlier < later for earlier, later in pairwise(found)), found
        assert 0 <= server.age(found[-1]) < WATCHDOG


@pytest.mark.parametrize("kind", [pytest.param(RtspServer, marks=needs_gstreamer), MjpegServer])
def test_a_server_killed_and_restarted_delivers_again_at_the_same_place(
    kind: Callable[..., Server],
) -> None:
    with kind() as server:
        url = server.url
        with reading(url) as (_, following):
            numbers(following, 5)
            server.kill()
            with pytest.raises(SourceError):
                numbers(following, 1000)
        with pytest.raises(SourceError):
            make_reader(SourceSettings(uri=url), MonotonicClock()).open()
        server.restart(width=640, height=480)
        with reading(url) as (form, following):
            assert (form.width, form.height) == (640, 480)
            numbers(following, 5)


@needs_gstreamer
def test_a_stream_through_the_proxy_is_the_same_until_it_is_cut() -> None:
    with RtspServer() as server, TroubleProxy(server) as proxy:
        with reading(proxy.url) as (_, following):
            numbers(following, 10)
            proxy.tell(cut_after=1)
            with pytest.raises(SourceError):
                numbers(following, 1000)
        assert not refused(server.port)


@pytest.mark.parametrize("kind", [pytest.param(RtspServer, marks=needs_gstreamer), MjpegServer])
def test_a_wrong_password_is_an_error_that_does_not_tell_it(
    kind: Callable[..., Server], capfd: pytest.CaptureFixture[str]
) -> None:
    with kind(user="me", password="right") as server:
        url = server.url.replace("right", "hidden")
        with pytest.raises(SourceError) as caught:
            make_reader(SourceSettings(uri=url), MonotonicClock()).open()
    assert "hidden" not in f"{caught.value} {caught.value.__cause__} {capfd.readouterr().err}"


# --- what the servers do when they are told; asked by hand, since readers hide much of it


class Parts:
    """The frames of an MJPEG stream, whatever stands between them."""

    def __init__(self, server: Server, stream: IO[bytes]) -> None:
        self._server = server
        self._stream = stream
        self.skipped = 0

    def size(self) -> tuple[int, int] | None:
        """Width and height of the next frame; None when there is none any more."""
        image = self.image()
        return None if image is None else (image.shape[1], image.shape[0])

    def image(self) -> Image | None:
        """The next frame."""
        while line := self._stream.readline():
            if line.startswith(b"Content-Length:"):
                self._stream.readline()
                data = np.frombuffer(self._stream.read(int(line.split(b":")[1])), np.uint8)
                return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)
            self.skipped += len(line)
        return None


@contextlib.contextmanager
def parts(server: Server) -> Iterator[Parts]:
    with urllib.request.urlopen(server.url, timeout=WATCHDOG) as stream:
        yield Parts(server, stream)


def test_images_change_their_size_after_so_many_and_end_after_so_many() -> None:
    with MjpegServer(fps=100, resize_after=3, stop_after=5) as server, parts(server) as got:
        assert [got.size() for _ in range(6)] == [(320, 240)] * 3 + [(640, 480)] * 2 + [None]


def test_a_still_camera_sends_one_image_for_ever() -> None:
    with MjpegServer(fps=100, still=True) as server, parts(server) as got:
        images = [got.image() for _ in range(10)]
        assert all(image is not None and read_number(image) is not None for image in images)
        assert len({image.tobytes() for image in images if image is not None}) == 1


def test_garbage_stands_between_images() -> None:
    with MjpegServer(fps=100, garbage=3000) as server, parts(server) as got:
        assert [got.size() for _ in range(3)] == [(320, 240)] * 3
        assert got.skipped > 3 * 2000  # some of it may look like a line of the header


def test_a_image_stops_in_its_middle_until_told() -> None:
    with MjpegServer(fps=100, freeze_after=2) as server, parts(server) as got:
        assert (got.size(), got.size()) == ((320, 240), (320, 240))
        assert becomes(lambda: "frozen in the middle" in server.log)
        server.tell(freeze_after=None)
        assert got.size() == (320, 240)


def test_a_trickle_takes_as_long_as_its_bytes() -> None:
    with MjpegServer(fps=100, bytes_per_second=20_000.0) as server:
        before = time.monotonic()
        with parts(server) as got:
            assert [got.size() for _ in range(3)] == [(320, 240)] * 3
            assert time.monotonic() - before > 0.5  # a frame has about 6 KB


# --- the servers themselves


def test_the_number_in_a_image_survives_and_damage_gives_none() -> None:
    for number in (0, 1, 0x5555, 0xAAAA, MODULUS - 1):
        for width, height in ((320, 240), (640, 480), (1280, 720)):
            grey = np.frombuffer(luma(number, width, height), np.uint8).reshape(height, width)
            image = np.asarray(cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR), np.uint8)
            ok, data = cv2.imencode(".jpg", image, (cv2.IMWRITE_JPEG_QUALITY, 30))
            assert ok
            assert read_number(np.asarray(cv2.imdecode(data, 1), np.uint8)) == number
            halved = np.asarray(cv2.resize(image, (width // 2, height // 2)), np.uint8)
            assert read_number(halved) == number
            spoilt = image.copy()
            spoilt[: height // 4] = 128
            assert read_number(spoilt) is None


def test_a_frozen_server_does_not_answer_until_it_thaws() -> None:
    with MjpegServer() as server:
        server.freeze()
        assert becomes(lambda: state(server.pid) == "T")
        with socket.create_connection(("127.0.0.1", server.port), WATCHDOG) as link:
            link.sendall(server.request)
            link.setblocking(False)
            with pytest.raises(BlockingIOError):
                link.recv(1)
            server.thaw()
            link.settimeout(WATCHDOG)
            assert link.recv(len(server.answer)) == server.answer


def test_nothing_is_left_when_a_test_fails_while_its_server_is_frozen() -> None:
    seen: list[int] = []

    def fail() -> None:
        with MjpegServer() as server:
            seen.extend((server.port, server.pid))
            server.freeze()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        fail()
    port, pid = seen
    assert refused(port)
    assert state(pid) == ""
    assert "log of MjpegServer" in caught.value.__notes__[0]


def test_a_server_that_refuses_at_first_is_late() -> None:
    server = MjpegServer(late=0.5)
    try:
        server.start(wait=False)
        assert refused(server.port)
        server.wait_ready()
        assert time.monotonic() - server.epoch >= 0.5
        assert not refused(server.port)
    finally:
        server.close()


def test_a_server_that_cannot_start_shows_its_log() -> None:
    server = MjpegServer()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server.tell(port=taken.getsockname()[1])
        with pytest.raises(ServerError, match="Address already in use"):
            server.__enter__()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_server_ends_when_the_tests_are_killed(frozen: bool) -> None:
    # Once it has stopped: the kernel hangs up on processes that are stopped, not on those to be.
    freeze = "server.freeze(); os.waitpid(server.pid, os.WUNTRACED)"
    program = (
        "import os, signal; from servers import MjpegServer\n"
        "with MjpegServer() as server:\n"
        f"    {freeze if frozen else 'pass'}\n"
        "    print(server.pid, flush=True)\n"
        "    signal.pause()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SERVERS.parent)},
        process_group=0,
    )
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
    finally:
        parent.kill()
        parent.communicate()
    try:
        assert becomes(lambda: state(pid) in ("", "Z"))  # a zombie where nothing reaps orphans
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
