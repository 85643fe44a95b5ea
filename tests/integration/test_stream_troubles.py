"""Streams in trouble: no half frame is handed out, nothing hangs, nothing is abandoned."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import av
import numpy as np
import pytest

from pipeline.clock import MonotonicClock
from pipeline.contracts import Reader
from pipeline.errors import FormatChangedError, SourceError
from pipeline.memory.frame import Image
from pipeline.sources import SourceSettings, make_reader
from tests.buffers import Buffer
from tests.servers import (
    HlsServer,
    MjpegServer,
    RtspServer,
    Server,
    TroubleProxy,
    gstreamer_missing,
    read_number,
)
from tests.servers.numbered import luma
from tests.usage import resident
from tests.waiting import becomes

pytestmark = pytest.mark.usefixtures("small_planes")

WATCHDOG = 30.0  # seconds until a hang is a failure; nothing waits for it otherwise

needs_gstreamer = pytest.mark.skipif(
    gstreamer_missing() is not None, reason=gstreamer_missing() or "installed"
)
KINDS = {
    "rtsp-tcp": pytest.param(RtspServer, "tcp", id="rtsp-tcp", marks=needs_gstreamer),
    "rtsp-udp": pytest.param(RtspServer, "udp", id="rtsp-udp", marks=needs_gstreamer),
    "hls": pytest.param(HlsServer, "tcp", id="hls", marks=needs_gstreamer),
    "mjpeg": pytest.param(MjpegServer, "tcp", id="mjpeg"),
}
EVERY_KIND = list(KINDS.values())


class Player:
    """A reader and the buffer that fits what it delivers."""

    def __init__(self, url: str, **more: Any) -> None:
        self.reader: Reader = make_reader(SourceSettings(uri=url, **more), MonotonicClock())
        self.format = self.reader.open()
        self._buffer = Buffer(self.format)
        self.changes: list[tuple[int, int]] = []

    def image(self) -> Image:
        """The next frame; it lives until the one after."""
        while True:
            assert self.reader.grab() is not None
            try:
                return self._buffer.retrieve(self.reader)
            except FormatChangedError as change:
                self.changes.append((change.format.width, change.format.height))
                self._buffer = Buffer(change.format)

    def numbers(self, count: int) -> list[int]:
        """The numbers of so many frames, each of which must be readable, in order."""
        found = [read_number(self.image()) for _ in range(count)]
        whole = [number for number in found if number is not None]
        assert len(whole) == count, f"frames without a readable number: {found}"
        assert all(earlier < later for earlier, later in pairwise(whole)), whole
        return whole

    def until_lost(self) -> tuple[int, str, float]:
        """How many more frames came, what was said then, and how long the last grab took."""
        for count in range(1000):
            began = time.monotonic()
            try:
                self.numbers(1)
            except SourceError as error:
                return count, str(error), time.monotonic() - began
        raise AssertionError("the stream is not lost")


@contextlib.contextmanager
def playing(url: str, **more: Any) -> Iterator[Player]:
    player = Player(url, **more)
    try:
        yield player
    finally:
        player.reader.close()


# --- the format


@pytest.mark.parametrize(("kind", "transport"), EVERY_KIND)
def test_a_new_size_in_the_middle_is_told_and_images_go_on(
    kind: Callable[..., Server], transport: str
) -> None:
    with kind(resize_after=30) as server, playing(server.url, transport=transport) as player:
        while not player.changes:
            player.numbers(1)
        assert player.changes == [(640, 480)]
        player.numbers(10)
        assert player.changes == [(640, 480)]


@needs_gstreamer
@pytest.mark.parametrize(("set_to", "offered"), [("tcp", "udp"), ("udp", "tcp")])
def test_rtsp_goes_over_the_transport_that_is_set_and_no_other(set_to: str, offered: str) -> None:
    with (
        RtspServer(transport=offered) as server,
        pytest.raises(SourceError, match=f"does not send over {set_to}"),
    ):
        Player(server.url, transport=set_to)


def test_a_size_that_is_told_only_by_the_first_image() -> None:
    """A transport stream that is joined in the middle, over a protocol that only FFmpeg knows."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_send_transport_stream, args=(listening,), daemon=True)
        thread.start()
        url = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        with playing(url) as player:
            assert (player.format.width, player.format.height) == (320, 240)
            player.numbers(5)
            assert "the stream stopped" in player.until_lost()[1]
        thread.join(WATCHDOG)


def _send_transport_stream(listening: socket.socket) -> None:
    link, _ = listening.accept()
    with link, link.makefile("wb") as file, av.open(file, "w", format="mpegts") as made:
        stream = made.add_stream("mpeg2video", rate=25)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        stream.codec_context.gop_size = 20
        packets = []
        for number in range(100):
            grey = np.frombuffer(luma(number, 320, 240), np.uint8).reshape(240, 320)
            frame = av.VideoFrame.from_ndarray(grey, format="gray").reformat(format="yuv420p")
            packets += stream.encode(frame)
        for packet in packets[5:]:
            made.mux(packet)


# --- it stops


@pytest.mark.parametrize(("kind", "transport"), EVERY_KIND)
def test_a_frozen_server_is_given_up_within_the_read_timeout(
    kind: Callable[..., Server], transport: str
) -> None:
    # HLS has nothing new for a second by itself.
    seconds = 3.0 if kind is HlsServer else 1.0
    more = {"transport": transport, "read_timeout_s": seconds}
    with kind() as server, playing(server.url, **more) as player:
        player.numbers(5)
        server.freeze()
        _, told, took = player.until_lost()
        assert seconds - 0.1 < took < seconds + 1.0
        assert f"{seconds:g} s" in told or "in time" in told


@pytest.mark.parametrize(("kind", "transport"), EVERY_KIND)
def test_a_killed_server_is_noticed(kind: Callable[..., Server], transport: str) -> None:
    more = {"transport": transport, "read_timeout_s": 3.0}
    with kind() as server, playing(server.url, **more) as player:
        player.numbers(5)
        server.kill()
        player.until_lost()


@pytest.mark.parametrize(("kind", "transport"), EVERY_KIND)
def test_an_interrupt_ends_a_grab_that_waits(kind: Callable[..., Server], transport: str) -> None:
    # FFmpeg cannot be called back from HLS; there it is heard when the read timeout is over.
    heard_within = 2.0 if kind is HlsServer else 0.5
    read_seconds = 2.0 if kind is HlsServer else WATCHDOG
    more = {"transport": transport, "read_timeout_s": read_seconds}
    with kind() as server, playing(server.url, **more) as player:
        player.numbers(3)
        began = [time.monotonic()]
        ended: list[float] = []

        def read() -> None:
            while player.reader.grab() is not None:
                began[0] = time.monotonic()
            ended.append(time.monotonic())

        thread = threading.Thread(target=read, daemon=True)
        server.freeze()
        thread.start()
        assert becomes(lambda: time.monotonic() - began[0] > 0.35)
        interrupted = time.monotonic()
        player.reader.interrupt()
        thread.join(WATCHDOG)
        assert ended
        assert ended[0] - interrupted < heard_within + 0.5  # the machine may be busy
        assert player.reader.grab() is None


def test_an_interrupt_ends_an_open_that_waits() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}/video"
        reader = make_reader(SourceSettings(uri=uri, open_timeout_s=WATCHDOG), MonotonicClock())
        caught: list[BaseException] = []

        def wait() -> None:
            try:
                reader.open()
            except SourceError as error:
                caught.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        link, _ = silent.accept()
        with link:
            assert link.recv(3) == b"GET"
            interrupted = time.monotonic()
            reader.interrupt()
            thread.join(WATCHDOG)
        assert caught
        assert time.monotonic() - interrupted < 5


# --- it is slow or spoilt


def test_a_trickle_of_jpeg_delivers_whole_images_or_times_out() -> None:
    with MjpegServer() as server, playing(server.url, read_timeout_s=2.0) as player:
        server.tell(bytes_per_second=20_000.0)  # a frame has about 6 KB
        player.numbers(5)
        server.tell(bytes_per_second=200.0)
        count, told, took = player.until_lost()
        assert count < 3
        assert "nothing came in time" in told
        assert took < 3.0


@needs_gstreamer
def test_a_trickle_of_rtsp_delivers_whole_images_or_is_lost() -> None:
    with (
        RtspServer(transport="tcp") as server,
        TroubleProxy(server) as proxy,
        playing(proxy.url, read_timeout_s=2.0) as player,
    ):
        player.numbers(5)
        proxy.tell(bytes_per_second=20_000.0)
        player.numbers(10)
        proxy.tell(bytes_per_second=100.0)
        _, _, took = player.until_lost()
        assert took < 3.0


@pytest.mark.parametrize("lengths", [True, False])
@pytest.mark.parametrize("garbage", [30, 3000, 100_000])
def test_garbage_between_jpegs_is_passed_over(lengths: bool, garbage: int) -> None:
    with MjpegServer(garbage=garbage, lengths=lengths) as server, playing(server.url) as player:
        player.numbers(20)


@pytest.mark.parametrize("kind", [pytest.param(RtspServer, marks=needs_gstreamer), MjpegServer])
def test_garbage_in_everything_spoils_no_image_that_is_handed_out(
    kind: Callable[..., Server],
) -> None:
    with (
        kind() as server,
        TroubleProxy(server) as proxy,
        playing(proxy.url, read_timeout_s=2.0) as player,
    ):
        player.numbers(5)
        proxy.tell(garbage=50)
        with contextlib.suppress(SourceError):
            player.numbers(20)


@needs_gstreamer
@pytest.mark.parametrize("kind", [RtspServer, HlsServer])
def test_a_stream_recovers_from_damage_at_a_key_frame(
    kind: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    with kind() as server, playing(server.url) as player:
        player.numbers(5)
        server.tell(damage=0.001)
        while "skipped" not in caplog.text:
            player.image()  # what the decoder does not notice, nobody does
        server.tell(damage=0.0)
        # Behind the last damaged frame is a key frame within a second.
        sound = (server.age(0) + 1.5) * server.behaviour.fps
        while (read_number(player.image()) or 0) < sound:
            pass
        player.numbers(25)
    assert caplog.text.count("skipped") <= 3


@pytest.mark.parametrize("lengths", [True, False])
@pytest.mark.parametrize("end", ["stays", "dies"])
def test_half_a_jpeg_is_never_handed_out(lengths: bool, end: str) -> None:
    with (
        MjpegServer(freeze_after=5, lengths=lengths) as server,
        playing(server.url, read_timeout_s=1.0) as player,
    ):
        player.numbers(5)
        assert becomes(lambda: "frozen in the middle" in server.log)
        if end == "dies":
            server.kill()
        assert player.until_lost()[0] == 0


# --- secrets


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(RtspServer, marks=needs_gstreamer),
        pytest.param(HlsServer, marks=needs_gstreamer),
        MjpegServer,
    ],
)
@pytest.mark.parametrize("user", ["me:hidden@", ""])
def test_a_wrong_password_is_told_nowhere(
    kind: Callable[..., Server],
    user: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    with (
        kind(user="me", password="right") as server,
        pytest.raises(SourceError, match="password") as caught,
    ):
        Player(server.url.replace("me:right@", user))
    told = "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None
    assert "hidden" not in told + caplog.text + capfd.readouterr().err


# --- nothing is left


def _resident_kib() -> int:
    return resident() // 1024


def _held() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize(("kind", "transport"), EVERY_KIND)
def test_opening_again_and_again_leaves_nothing(
    kind: Callable[..., Server], transport: str
) -> None:
    with kind() as server:

        def cycle() -> None:
            with playing(server.url, transport=transport) as player:
                player.numbers(2)

        for _ in range(5):
            cycle()
        gc.collect()
        held, before = _held(), _resident_kib()
        for _ in range(30):
            cycle()
        gc.collect()
        assert becomes(lambda: all(now <= then for now, then in zip(_held(), held, strict=True)))
        assert _resident_kib() - before < 8192


@pytest.mark.parametrize(("kind", "transport"), EVERY_KIND)
def test_failing_again_and_again_leaves_nothing(
    kind: Callable[..., Server], transport: str
) -> None:
    with kind() as server:
        server.kill()

        def cycle() -> None:
            with pytest.raises(SourceError, match="refused"):
                Player(server.url, transport=transport)

        for _ in range(20):
            cycle()
        gc.collect()
        held, before = _held(), _resident_kib()
        for _ in range(100):
            cycle()
        gc.collect()
        assert _held() == held
        assert _resident_kib() - before < 4096


@pytest.mark.parametrize("kind", [pytest.param(RtspServer, marks=needs_gstreamer), MjpegServer])
def test_reading_takes_no_more_and_more_memory(kind: Callable[..., Server]) -> None:
    with kind(fps=200.0, width=640, height=480) as server, playing(server.url) as player:
        player.numbers(200)
        before = _resident_kib()
        player.numbers(600)
        assert _resident_kib() - before < 4096
