"""Cameras that mean harm, or are badly broken: what each does with a connection, by name.

Only the standard library; the frames that they need are given to them.
"""

from __future__ import annotations

import itertools
import random
import socket
import threading
from collections.abc import Callable, Iterable

from .raw import header, read_head

__all__ = ["ANSWER", "RTSP", "TLS", "Answer", "cut_http", "cut_rtsp", "http_answers"]

Answer = Callable[[socket.socket, bytes], None]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n"
_NONE = b"Content-Length: 0\r\n\r\n"
_JUNK = random.Random(5).randbytes(1 << 16)
_SECONDS = 20.0  # a connection that is held open for nothing


def _part(image: bytes) -> bytes:
    return b"--frame\r\nContent-Length: %d\r\n\r\n%s\r\n" % (len(image), image)


def _wait(link: socket.socket) -> None:
    """Until the client has left."""
    link.settimeout(_SECONDS)
    while link.recv(4096):
        pass


def _once(*data: bytes) -> Answer:
    """Send this and wait."""

    def answer(link: socket.socket, _: bytes) -> None:
        link.sendall(b"".join(data))
        _wait(link)

    return answer


def _endless(begin: bytes, again: bytes) -> Answer:
    def answer(link: socket.socket, _: bytes) -> None:
        link.sendall(begin)
        for _turn in range(20_000):  # at most about a gigabyte
            link.sendall(again)

    return answer


def _drip(begin: bytes, more: Iterable[int]) -> Answer:
    never = threading.Event()

    def answer(link: socket.socket, _: bytes) -> None:
        for byte in itertools.chain(begin, more):
            link.sendall(bytes([byte]))
            never.wait(0.02)

    return answer


def _challenge(*asked: bytes) -> Answer:
    lines = b"".join(b"WWW-Authenticate: %s\r\n" % each for each in asked)
    return _once(b"HTTP/1.1 401 No\r\n" + lines + _NONE)


def _moved(target: bytes) -> Answer:
    return _once(b"HTTP/1.1 302 Found\r\nLocation: " + target + b"\r\n" + _NONE)


def _typed(kind: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nConnection: close\r\n\r\n"


def _sized(image: bytes, width: int, height: int) -> bytes:
    """The frame, which announces another size than it has."""
    at = image.index(b"\xff\xc0") + 5
    return image[:at] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + image[at + 4 :]


def http_answers(image: bytes) -> dict[str, Answer]:
    part = _part(image)
    chain = b"\xff\xe1\x00\x08\xff\xd8\xff\xe1\x00\x02" * 50_000
    chunked = ANSWER[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
    list_ = _typed(b"application/vnd.apple.mpegurl") + b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n"
    return {
        "endless-headers": _endless(b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"b" * 1000 + b"\r\n"),
        "endless-header": _endless(b"HTTP/1.1 200 OK\r\nX-A: ", b"b" * 65536),
        "drip": _drip(b"HTTP/1.1 200 OK\r\nX-A: ", itertools.repeat(98)),
        "continue": _endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        "status": _once(b"HTTP/1.1 99999999999 \xff\xff\r\n\r\n"),
        "silent": _once(),
        "length": _once(ANSWER[:-2], b"Content-Length: 99999999999999999999\r\n\r\n", part),
        "negative-length": _once(ANSWER[:-2], b"Content-Length: -5\r\n\r\n", part),
        "part-length": _once(
            ANSWER, b"--frame\r\nContent-Length: 9", b"9" * 30, b"\r\n\r\n", image
        ),
        "chunk": _once(chunked, b"FFFFFFFFFFFFFFFFFFFF\r\n", part),
        "negative-chunk": _once(chunked, b"-5\r\n", part),
        "endless-chunk": _endless(chunked, b"0" * 65536),
        "noise": _endless(ANSWER, _JUNK),
        "endless-frame": _endless(ANSWER + image[:400], b"\x55" * 65536),
        "chain": _once(ANSWER, part, b"\xff\xd8", chain, bytes(4)),
        "giant": _once(ANSWER, part, _part(_sized(image, 16000, 16000)) * 50),
        "tiny": _once(ANSWER, part, _part(_sized(image, 1, 1)), _part(_sized(image, 0, 0))),
        "challenge": _challenge(b"Digest foo"),
        "challenge-empty": _challenge(b'Digest realm=, nonce="x"'),
        "challenge-int": _challenge(b'Digest realm="x", nonce="y", qop="auth-int"'),
        "challenge-junk": _challenge(b'"\\', b"=,=,\xff", b"Basic" * 1000, b""),
        "moved-nowhere": _moved(b"http://["),
        "moved-port": _moved(b"http://127.0.0.1:99999999/"),
        "moved-name": _moved(b"http://a..b/"),
        "moved-file": _moved(b"file:///etc/passwd"),
        "moved-binary": _moved(b"\xff\xfe\x01http://\x02"),
        "moved-round": _moved(b"/again"),
        "video-noise": _endless(_typed(b"video/mp4"), _JUNK),
        "video-zeros": _endless(_typed(b"video/mp4"), bytes(65536)),
        "list-of-itself": _once(list_, b"#EXT-X-STREAM-INF:BANDWIDTH=1\n/again\n"),
        "list-of-files": _once(list_, b"#EXTINF:1,\nfile:///etc/passwd\n"),
    }


def _reply(request: bytes, head: bytes = b"", body: bytes = b"") -> bytes:
    number = header(request, b"CSeq") or b"1"
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    return b"RTSP/1.0 200 OK\r\nCSeq: %s\r\n%s%s\r\n%s" % (number, head, length, body)


def _described(media: bytes) -> bytes:
    return b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n" + media


_VIDEO = b"m=video 0 RTP/AVP 96\r\na=rtpmap:96 %s/90000\r\na=control:t0\r\n"
_TEXT = b"Content-Type: application/sdp\r\n"


def _script(request: bytes, codec: bytes = b"H264") -> bytes:
    """An answer of a camera that works, up to a few packets of the codec, which hold nothing."""
    method = request.split(b" ", 1)[0]
    if method == b"DESCRIBE":
        return _reply(request, _TEXT, _described(_VIDEO % codec))
    if method == b"SETUP":
        lanes = b"Session: 1\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n"
        return _reply(request, lanes)
    if method != b"PLAY":
        return _reply(request, b"Public: OPTIONS, DESCRIBE, SETUP, PLAY\r\nSession: 1\r\n")
    packets = b""
    for number in range(8):
        stamp = (number * 3000).to_bytes(4, "big")
        packet = b"\x80\xe0" + number.to_bytes(2, "big") + stamp + b"\0\0\0\1" + b"x" * 40
        packets += b"$\0" + len(packet).to_bytes(2, "big") + packet
    return _reply(request, b"Session: 1\r\n") + packets


def _instead_of_description(answer: Answer) -> Callable[[socket.socket], None]:
    """A camera that gives a sign of life first."""

    def serve(link: socket.socket) -> None:
        while request := read_head(link):
            if request.startswith(b"DESCRIBE"):
                answer(link, request)
                return
            link.sendall(_script(request))

    return serve


def _unknown_codec(link: socket.socket) -> None:
    while request := read_head(link):
        link.sendall(_script(request, b"X-VENDOR"))


def _announces(length: int, begin: bytes = b"", again: bytes = b"") -> Answer:
    def answer(link: socket.socket, request: bytes) -> None:
        link.sendall(_reply(request, _TEXT + b"Content-Length: %d\r\n" % length) + begin)
        for _ in range(1500 if again else 0):  # at most some hundred megabytes
            link.sendall(again)
        _wait(link)

    return answer


def _numbered(answer: Callable[[bytes], Answer]) -> Answer:
    """With the answer's number in front, without which FFmpeg waits for another one."""

    def serve(link: socket.socket, request: bytes) -> None:
        begin = b"RTSP/1.0 200 OK\r\nCSeq: " + (header(request, b"CSeq") or b"1") + b"\r\n"
        answer(begin)(link, request)

    return serve


_MANY = _described((_VIDEO % b"H264") * 5000)
RTSP: dict[str, Callable[[socket.socket], None]] = {
    "unknown-codec": _unknown_codec,
    **{
        name: _instead_of_description(answer)
        for name, answer in {
            "endless-headers": _numbered(
                lambda begin: _endless(begin, b"X: " + b"a" * 1000 + b"\r\n")
            ),
            "endless-header": _numbered(lambda begin: _endless(begin + b"X: ", b"a" * 65536)),
            "length": _announces(2_147_483_647, b"v=0\r\n"),
            "long-text": _announces(817_000_000, b"v=0\r\n", b"a=x\r\n" * 40_000),
            "negative-length": _announces(-1),
            "noise": _endless(b"", _JUNK),
            "interleaved": _endless(b"", b"$\x00\xff\xff" + b"x" * 65535),
            "drip": _drip(b"RTSP/1.0 200 OK\r\nX: ", itertools.repeat(121)),
            "many-streams": lambda link, request: link.sendall(_reply(request, _TEXT, _MANY)),
            "challenge": _once(
                b"RTSP/1.0 401 No\r\nCSeq: 2\r\nWWW-Authenticate: Digest foo\r\n\r\n"
            ),
            "moved-nowhere": _once(b"RTSP/1.0 302 F\r\nCSeq: 2\r\nLocation: rtsp://[\r\n\r\n"),
        }.items()
    },
}


def _after_hello(answer: Answer) -> Callable[[socket.socket], None]:
    def serve(link: socket.socket) -> None:
        link.recv(4096)
        answer(link, b"")

    return serve


TLS: dict[str, Callable[[socket.socket], None]] = {
    "noise": _after_hello(_endless(b"", _JUNK)),
    "hello": _after_hello(_once(b"\x16\x03\x03\xff\xff", _JUNK[:-1])),
    "drip": _after_hello(_drip(b"\x16\x03\x03\x40\x00\x02", itertools.repeat(120))),
}


def cut_http(data: bytes, step: int = 1) -> Callable[[socket.socket], None]:
    """Closes ``step`` bytes later each time that it is asked, and begins again at the end."""
    positions = itertools.count(0, step)

    def serve(link: socket.socket) -> None:
        if read_head(link):
            link.sendall(data[: next(positions) % (len(data) + 1)])

    return serve


def cut_rtsp(step: int = 1) -> Callable[[socket.socket], None]:
    """Closes after ``step`` bytes more of the conversation each time that a camera is opened."""
    positions = itertools.count(0, step)

    def serve(link: socket.socket) -> None:
        left: int | None = None
        while request := read_head(link):
            if left is None:
                # The sign of life comes over a connection of its own and is given whole.
                if b"User-Agent" not in request:
                    link.sendall(_script(request))
                    return
                left = next(positions)
            data = _script(request)[:left]
            link.sendall(data)
            left -= len(data)
            if not left:
                return

    return serve
