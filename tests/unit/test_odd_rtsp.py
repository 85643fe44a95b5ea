"""RTSP cameras that are odd but right: each plays, and gives the frames that it sends."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import av
import numpy as np
import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import SourceError
from pipeline.sources import make_reader
from tests.servers import read_number
from tests.servers.numbered import luma
from tests.servers.raw import RawServer, header, read_head
from tests.unit.playing import play, settings

COUNT, GROUP = 60, 10  # frames, and from one key frame to the next
WIDTH, HEIGHT = 320, 240
TICKS = 3600  # of the 90 kHz clock, from one frame to the next
LONGEST = 1400  # bytes of a packet
SPS, PPS, DELIMITER = 7, 8, 9
ALL = list(range(COUNT))

Unit = list[bytes]


@functools.cache
def units() -> list[Unit]:
    """The parts (NAL units) of each frame, which carries its number."""
    context = av.CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt = WIDTH, HEIGHT, "yuv420p"
    context.framerate, context.gop_size = Fraction(25), GROUP
    context.options = {"tune": "zerolatency", "preset": "ultrafast"}
    made: list[Unit] = []
    for number in range(COUNT):
        grey = np.frombuffer(luma(number, WIDTH, HEIGHT), np.uint8).reshape(HEIGHT, WIDTH)
        image = av.VideoFrame.from_ndarray(grey, format="gray").reformat(format="yuv420p")
        for packet in context.encode(image):
            parts = re.split(rb"\x00\x00\x00?\x01", bytes(packet))[1:]
            made.append([part for part in parts if part[0] & 31 != DELIMITER])
    return made


@dataclass(frozen=True)
class Camera:
    """What is odd about one; by default nothing is."""

    stamp: Callable[[int], int] = lambda number: number * TICKS
    parameters: str = "everywhere"  # "described", "sent" with each key frame, or "once"
    media: str = ""  # described before the video
    begin: int = 0  # the frame that it begins with
    marks: bool = True  # on the last packet of a frame
    refuses: Callable[[bytes], str] = lambda _: ""  # status and headers instead of a description

    def answer(self, link: socket.socket) -> None:
        """Talk to one client until it has all frames."""
        while request := read_head(link):
            method = request.split(b" ", 1)[0]
            if method == b"DESCRIBE" and (refusal := self.refuses(request)):
                status, _, head = refusal.partition("\r\n")
                link.sendall(reply(request, head, status=status))
            elif method == b"DESCRIBE":
                link.sendall(reply(request, "Content-Type: application/sdp\r\n", self._described()))
            elif method == b"SETUP":
                lanes = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n"
                link.sendall(reply(request, f"{lanes}Session: 1\r\n"))
            elif method == b"PLAY":
                link.sendall(reply(request, "Session: 1\r\n") + b"".join(self._packets()))
                return
            else:
                link.sendall(reply(request, "Public: OPTIONS, DESCRIBE, SETUP, PLAY\r\n"))

    def _described(self) -> str:
        sets = ""
        if self.parameters in ("everywhere", "described"):
            texts = (base64.b64encode(part).decode() for part in parameter_sets(units()[0]))
            sets = f";sprop-parameter-sets={','.join(texts)}"
        return (
            "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=camera\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n"
            f"{self.media}m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n"
            f"a=fmtp:96 packetization-mode=1{sets}\r\na=control:video\r\n"
        )

    def _packets(self) -> Iterator[bytes]:
        """RTP of all frames, between the answers (RFC 2326, 10.12); the count passes 65535."""
        count = 65500
        for number, unit in enumerate(units()[self.begin :], self.begin):
            silent = self.parameters == "described" or (self.parameters == "once" and number)
            omitted = parameter_sets(unit) if silent else []
            packets = list(pieces([part for part in unit if part not in omitted]))
            for at, packet in enumerate(packets, 1):
                kind = 96 | 0x80 * (self.marks and at == len(packets))
                stamp = self.stamp(number) % 2**32
                head = struct.pack(">BBHII", 0x80, kind, count % 2**16, stamp, 7)
                yield struct.pack(">cBH", b"$", 0, len(head + packet)) + head + packet
                count += 1


def parameter_sets(unit: Unit) -> list[bytes]:
    return [part for part in unit if part[0] & 31 in (SPS, PPS)]


def pieces(unit: Unit) -> Iterator[bytes]:
    """What each packet of a frame holds: one part, or a fragment of one (RFC 6184, 5.8)."""
    for part in unit:
        if len(part) <= LONGEST:
            yield part
            continue
        fragments = [part[at : at + LONGEST] for at in range(1, len(part), LONGEST)]
        for at, fragment in enumerate(fragments):
            edges = 0x80 * (at == 0) | 0x40 * (at == len(fragments) - 1)
            yield bytes([part[0] & 0xE0 | 28, edges | part[0] & 31]) + fragment


def reply(request: bytes, head: str = "", body: str = "", status: str = "200 OK") -> bytes:
    number = header(request, b"CSeq").decode()
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"RTSP/1.0 {status}\r\nCSeq: {number}\r\n{head}{length}\r\n{body}".encode()


def played(answer: Callable[[socket.socket], None], user: str = "") -> list[int | None]:
    """The numbers of the frames that came until the camera hung up."""
    with RawServer(answer) as server:
        given = settings(f"rtsp://{user}127.0.0.1:{server.port}/live")
        frames, error = play(make_reader(given, MonotonicClock()))
    assert "the stream stopped" in str(error)
    return [read_number(frame) for frame in frames]


@pytest.mark.parametrize(
    "stamp",
    [
        pytest.param(lambda number: (number - 30 * (number >= 30)) * TICKS, id="starts anew"),
        pytest.param(
            lambda number: number * TICKS - 900_000_000 * (number >= 30), id="falls back by hours"
        ),
        pytest.param(
            lambda number: number * TICKS - 882_000_000 * (number % 10 == 9), id="far now and then"
        ),
        pytest.param(lambda _: 0, id="always the same"),
        pytest.param(lambda number: 2**32 - (20 - number) * TICKS, id="passes its end"),
    ],
)
def test_odd_time_stamps_lose_no_image(stamp: Callable[[int], int]) -> None:
    assert played(Camera(stamp).answer) == ALL


@pytest.mark.parametrize("parameters", ["everywhere", "described", "sent", "once"])
def test_parameter_sets_may_come_in_any_place(parameters: str) -> None:
    assert played(Camera(parameters=parameters).answer) == ALL


@pytest.mark.parametrize(
    "media",
    [
        pytest.param("m=audio 0 RTP/AVP 0\r\na=control:sound\r\n", id="sound"),
        pytest.param(
            "m=application 0 RTP/AVP 107\r\na=rtpmap:107 vnd.onvif.metadata/90000\r\n"
            "a=control:data\r\n",
            id="metadata",
        ),
    ],
)
def test_video_is_found_behind_other_media(media: str) -> None:
    assert played(Camera(media=media).answer) == ALL


def test_a_stream_joined_between_key_frames_begins_at_the_next_one() -> None:
    assert played(Camera(begin=5).answer) == ALL[GROUP:]


def test_images_without_marks_all_come() -> None:
    assert played(Camera(marks=False).answer) == ALL


@pytest.mark.parametrize("status", ["301 Moved Permanently", "302 Found"])
def test_a_camera_that_sends_elsewhere_is_followed(status: str) -> None:
    with RawServer(Camera().answer) as server:
        refusal = f"{status}\r\nLocation: rtsp://127.0.0.1:{server.port}/other\r\n"
        assert played(Camera(refuses=lambda _: refusal).answer) == ALL


def test_a_camera_that_sends_to_itself_is_given_up() -> None:
    def refusal(request: bytes) -> str:
        return f"302 Found\r\nLocation: {request.split()[1].decode()}\r\n"

    with RawServer(Camera(refuses=refusal).answer) as server:
        given = settings(f"rtsp://127.0.0.1:{server.port}/live", open_timeout_s=0.3)
        with pytest.raises(SourceError, match=r"did not answer within 0\.3 s"):
            make_reader(given, MonotonicClock()).open()


@pytest.mark.parametrize("status", ["404 Not Found", "503 Service Unavailable"])
def test_a_camera_that_refuses_is_an_error_at_once(status: str) -> None:
    with RawServer(Camera(refuses=lambda _: status).answer) as server:
        given = settings(f"rtsp://127.0.0.1:{server.port}/live", open_timeout_s=60)
        with pytest.raises(SourceError, match="it cannot be opened: "):
            make_reader(given, MonotonicClock()).open()


def basic(request: bytes, user: str, password: str) -> bool:
    expected = base64.b64encode(f"{user}:{password}".encode())
    return header(request, b"Authorization") == b"Basic " + expected


def digest(request: bytes, user: str, password: str) -> bool:
    """Digest by MD5 without qop (RFC 2069)."""
    given = dict(re.findall(r'(\w+)="([^"]*)"', header(request, b"Authorization").decode()))
    secret = md5(f"{user}:camera:{password}")
    wanted = md5(f"{secret}:once:{md5('DESCRIBE:' + given.get('uri', ''))}")
    return given.get("response") == wanted


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("challenge", "passes"),
    [('Basic realm="camera"', basic), ('Digest realm="camera", nonce="once"', digest)],
)
def test_a_password_with_special_characters_is_told_as_it_is(
    challenge: str, passes: Callable[[bytes, str, str], bool]
) -> None:
    def refusal(request: bytes) -> str:
        known = passes(request, "us er", "p@ss:w/#%")
        return "" if known else f"401 Unauthorized\r\nWWW-Authenticate: {challenge}\r\n"

    assert played(Camera(refuses=refusal).answer, "us%20er:p%40ss%3Aw%2F%23%25@") == ALL
    with pytest.raises(SourceError, match="the user or the password is wrong"):
        played(Camera(refuses=refusal).answer, "us%20er:p%40ss@")
