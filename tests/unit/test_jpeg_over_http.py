"""Frames over HTTP, by the byte: JPEGs out of anything, and answers of every shape."""

from __future__ import annotations

import hashlib
import http.server
import random
import ssl
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial

import cv2
import numpy as np
import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import FormatChangedError, SourceError
from pipeline.memory.frame import Image
from pipeline.sources import SourceSettings, make_reader
from pipeline.sources.http_stream import HttpStream
from pipeline.sources.jpeg import JpegFinder
from pipeline.sources.synthetic import synthetic_frame
from tests.buffers import Buffer

pytestmark = pytest.mark.usefixtures("small_planes")

WATCHDOG = 20.0  # seconds until a hang is a failure; nothing waits for it otherwise


def jpeg(number: int, width: int = 64, height: int = 48, *more: int) -> bytes:
    ok, data = cv2.imencode(".jpg", synthetic_frame(number, width, height), more)
    assert ok
    return data.tobytes()


IMAGES = [jpeg(number) for number in range(4)]


def found_in(stream: bytes, size: int = 1000, most: int = 1 << 20) -> tuple[list[bytes], int]:
    """Every frame of a stream that comes in pieces, and how many were spoilt."""
    finder = JpegFinder("x", most)
    all_coded = []
    for at in range(0, len(stream), size):
        finder.feed(stream[at : at + size])
        while (coded := finder.next()) is not None:
            all_coded.append(coded)
    return all_coded, finder.spoilt


def part(coded: bytes, length: int | None = None) -> bytes:
    told = b"" if length is None else b"content-LENGTH: %d\r\n" % length
    return b"--x\r\nContent-Type: image/jpeg\r\n" + told + b"\r\n" + coded + b"\r\n"


# --- out of bytes


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize("lengths", [True, False])
def test_images_are_found_however_they_come(size: int, lengths: bool) -> None:
    stream = b"".join(part(p, len(p) if lengths else None) for p in IMAGES)
    assert found_in(stream, size) == (IMAGES, 0)


def test_images_are_found_without_anything_around_them() -> None:
    assert found_in(b"".join(IMAGES)) == (IMAGES, 0)


@pytest.mark.parametrize(
    "option",
    [
        (cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
        (cv2.IMWRITE_JPEG_RST_INTERVAL, 2),
        (cv2.IMWRITE_JPEG_QUALITY, 100),
    ],
)
def test_images_of_every_make_are_found(option: tuple[int, int]) -> None:
    all_coded = [jpeg(number, 320, 240, *option) for number in range(3)]
    assert found_in(b"".join(map(part, all_coded))) == (all_coded, 0)


def test_a_image_inside_a_image_is_part_of_it() -> None:
    small = IMAGES[0]
    segment = b"\xff\xe1" + (len(small) + 2).to_bytes(2, "big") + small
    coded = IMAGES[1][:2] + segment + IMAGES[1][2:]
    assert found_in(part(coded)) == ([coded], 0)


def test_fill_bytes_before_a_mark_are_allowed() -> None:
    head = IMAGES[0].index(b"\xff\xdb")
    coded = IMAGES[0][:head] + b"\xff\xff" + IMAGES[0][head:-2] + b"\xff\xff\xff\xd9"
    assert found_in(part(coded)) == ([coded], 0)


@pytest.mark.parametrize("lengths", [True, False])
@pytest.mark.parametrize("cut", [2, 3, 10, 30, 400, -100, -3, -1])
def test_a_cut_image_is_passed_over_and_the_next_one_found(lengths: bool, cut: int) -> None:
    whole = IMAGES[0]
    stream = part(whole[:cut], len(whole) if lengths else None)
    all_coded, spoilt = found_in(stream + b"".join(map(part, IMAGES[1:])) + b"end")
    assert all_coded == IMAGES[1:]
    assert spoilt <= 1


def test_bytes_put_into_a_image_with_a_length_are_noticed() -> None:
    whole = IMAGES[0]
    stream = part(whole[:600] + b"more" + whole[600:], len(whole))
    assert found_in(stream + part(IMAGES[1])) == ([IMAGES[1]], 1)


def test_bytes_behind_a_image_that_its_length_counts_are_no_harm() -> None:
    stream = b"".join(part(p + bytes(16), len(p) + 16) for p in IMAGES)
    assert found_in(stream) == (IMAGES, 0)


def test_any_garbage_between_images_is_passed_over() -> None:
    noise = random.Random(1)
    stream = b"".join(noise.randbytes(noise.randrange(20_000)) + part(p) for p in IMAGES * 20)
    assert found_in(stream)[0] == IMAGES * 20


def test_garbage_for_ever_takes_no_memory() -> None:
    finder = JpegFinder("x")
    for _ in range(100):
        finder.feed(bytes(100_000))
        assert finder.next() is None
    assert len(finder._bytes) < 10_000


def test_a_image_without_end_is_an_error() -> None:
    finder = JpegFinder("cam", most=100_000)
    finder.feed(IMAGES[0][:-2])
    for _ in range(98):
        assert finder.next() is None
        finder.feed(bytes(1000))
    finder.feed(bytes(2000))
    with pytest.raises(SourceError, match="cam: an image of over 100000 bytes"):
        finder.next()


def test_starts_inside_of_starts_take_no_quadratic_time() -> None:
    """Each segment holds another start, from which the same segments lead to the same end."""

    def seconds(units: int) -> float:
        finder = JpegFinder("x")
        finder.feed(b"\xff\xd8" + b"\xff\xe1\x00\x08\xff\xd8\xff\xe1\x00\x02" * units + bytes(4))
        began = time.thread_time()
        assert finder.next() is None
        return time.thread_time() - began

    assert seconds(100_000) < 1 + 64 * seconds(5_000)  # quadratic took 10 s for 6,500
    finder = JpegFinder("x")
    finder.feed(b"\xff\xd8" + b"\xff\xe1\x00\x08\xff\xd8\xff\xe1\x00\x02" * 50 + bytes(4))
    finder.feed(part(IMAGES[0]))
    assert finder.next() == IMAGES[0]


def test_a_image_that_announces_too_much_is_refused_by_name() -> None:
    huge = bytearray(IMAGES[0])
    frame = huge.index(b"\xff\xc0")
    huge[frame + 5 : frame + 9] = (16000).to_bytes(2, "big") * 2
    finder = JpegFinder("cam", max_pixels=1_000_000)
    finder.feed(IMAGES[1] + bytes(huge))
    assert finder.next() == IMAGES[1]
    with pytest.raises(
        SourceError, match=r"cam: the image declares a size of 16000x16000, .*max_pixels"
    ):
        finder.next()


# --- out of answers


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers by the path; the asked paths and their authorizations are kept."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[str, str]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization", "")))
        self.close_connection = True
        name = self.path.split("?")[0].strip("/")
        getattr(self, name)()

    def _images(self, *chunks: bytes, chunked: bool = False) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "Multipart/X-Mixed-Replace; boundary=x")
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk) if chunked else chunk)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def plain(self) -> None:
        self._images(*map(part, IMAGES))

    def chunked(self) -> None:
        stream = b"".join(map(part, IMAGES))
        self._images(*(stream[at : at + 99] for at in range(0, len(stream), 99)), chunked=True)

    def cut_chunk(self) -> None:
        self._images(part(IMAGES[0]))
        self.wfile.write(b"10000\r\nabc")

    def damaged(self) -> None:
        spoilt = bytearray(IMAGES[1])
        spoilt[-600:-2] = bytes(598)
        self._images(*map(part, (IMAGES[0], bytes(spoilt), IMAGES[2])))

    def grows(self) -> None:
        self._images(part(IMAGES[0]), part(jpeg(1, 128, 96)), part(jpeg(2, 128, 96)))

    def moved(self) -> None:
        self.send_response(302)
        self.send_header("Location", "/plain?x=1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def circle(self) -> None:
        self.send_response(302)
        self.send_header("Location", "/circle")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def missing(self) -> None:
        self.send_error(404)

    def no_http(self) -> None:
        self.wfile.write(b"hello\r\n\r\n")

    def text(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def digest(self) -> None:
        told = self.headers.get("Authorization", "")
        if told.startswith("Digest ") and self._answers(told.removeprefix("Digest ")):
            self.plain()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="cam"')
        self.send_header("WWW-Authenticate", 'Digest realm="cam", nonce="n1", qop="auth"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answers(self, told: str) -> bool:
        given = urllib.request.parse_keqv_list(urllib.request.parse_http_list(told))

        def md5(*words: str) -> str:
            return hashlib.md5(":".join(words).encode()).hexdigest()

        secret = md5("me", "cam", "p@ss w/rd")
        asked = md5("GET", self.path)
        counts = (given["nonce"], given["nc"], given["cnonce"], given["qop"])
        return given["uri"] == self.path and given["response"] == md5(secret, *counts, asked)

    def log_message(self, *_: object) -> None:
        pass


class Web:
    """A server with these answers, and what it was asked."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        handler = type("Handler", (Answers,), {"asked": self.asked})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if context is None else "https"
        serve = partial(self._server.serve_forever, poll_interval=0.02)
        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()

    def url(self, path: str, user: str = "") -> str:
        return f"{self._scheme}://{user}127.0.0.1:{self._server.server_port}/{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(WATCHDOG)
        self._server.server_close()


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.close()


def play(url: str) -> tuple[list[Image], SourceError | None]:
    """What an MJPEG stream delivers, and the error that ended it."""
    reader = make_reader(SourceSettings(uri=url, open_timeout_s=WATCHDOG), MonotonicClock())
    form = reader.open()
    buffer = Buffer(form)
    images = []
    try:
        while reader.grab() is not None:
            images.append(buffer.retrieve(reader).copy())
    except SourceError as error:
        return images, error
    finally:
        reader.close()
    return images, None


def decoded(coded: bytes) -> Image:
    return np.asarray(cv2.imdecode(np.frombuffer(coded, np.uint8), 1), np.uint8)


@pytest.mark.parametrize("path", ["plain", "chunked", "moved"])
def test_images_arrive_whole_and_the_end_is_no_end_of_file(web: Web, path: str) -> None:
    images, error = play(web.url(path))
    assert "the stream ended" in str(error)
    assert len(images) == len(IMAGES)
    for image, coded in zip(images, IMAGES, strict=True):
        # Both decode alike but for how they blow up the color planes.
        assert np.abs(image.astype(int) - decoded(coded)).mean() < 3
        assert abs(image.mean() - decoded(coded).mean()) < 1


def test_an_answer_that_breaks_off_is_an_error(web: Web) -> None:
    images, error = play(web.url("cut_chunk"))
    assert len(images) == 1
    assert "the stream ended" in str(error) or "the connection broke" in str(error)


def test_a_damaged_image_is_passed_over(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    images, _ = play(web.url("damaged"))
    assert len(images) == 2  # OpenCV would have painted over it
    assert "a frame is damaged; skipped" in caplog.text


def test_a_image_of_another_size_tells_it(web: Web) -> None:
    _, error = play(web.url("grows"))
    assert isinstance(error, FormatChangedError)
    assert error.format[:2] == (128, 96)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("missing", "HTTP status 404"),
        ("circle", "from one address to another"),
        ("no_http", "no HTTP"),
        ("text", "cannot be opened"),
        ("digest", "a user and a password"),
    ],
)
def test_what_is_no_video_is_told(web: Web, path: str, told: str) -> None:
    with pytest.raises(SourceError, match=told) as caught:
        play(web.url(path))
    assert caught.value.__context__ is None


@pytest.mark.parametrize("url", ["http://", "http://127.0.0.1:x/", "http://127.0.0.1:99999/"])
def test_an_address_that_is_none_is_told(url: str) -> None:
    with pytest.raises(SourceError, match=r"no HTTP address|cannot be reached"):
        HttpStream(url, "cam").open(5)


def test_digest_is_answered_where_it_is_offered(web: Web) -> None:
    images, _ = play(web.url("digest", "me:p%40ss%20w%2Frd@"))
    assert len(images) == len(IMAGES)
    assert all("p@ss" not in told and "Basic" not in told for _, told in web.asked)
    secret = "".join(("hid", "den"))  # else the traceback quotes it from here
    with pytest.raises(SourceError, match="the user or the password is wrong") as caught:
        play(web.url("digest", f"me:{secret}@"))
    assert secret not in "".join(traceback.format_exception(caught.value))


def test_a_password_is_not_carried_to_another_host(web: Web) -> None:
    other = Web()
    try:
        stolen = other.url("digest")
        # The redirect leads to a host that asks for a password, too.
        patched = type(
            "Leads", (Answers,), {"asked": [], "moved": lambda self: _redirect(self, stolen)}
        )
        web._server.RequestHandlerClass = patched
        with pytest.raises(SourceError, match="asks for a user"):
            play(web.url("moved", "me:hidden@"))
        assert [told for _, told in other.asked] == [""]
    finally:
        other.close()


def _redirect(handler: http.server.BaseHTTPRequestHandler, target: str) -> None:
    handler.send_response(302)
    handler.send_header("Location", target)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def test_a_trickle_of_a_head_ends_at_the_deadline(web: Web) -> None:
    gone = threading.Event()

    def drip(handler: Answers) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nX: " + bytes(100_000):
            if gone.wait(0.01):
                return
            handler.wfile.write(bytes((byte or 97,)))

    web._server.RequestHandlerClass = type("Drips", (Answers,), {"asked": [], "plain": drip})
    began = time.monotonic()
    with pytest.raises(SourceError, match=r"did not answer within 0\.5 s"):
        HttpStream(web.url("plain"), "cam").open(0.5)
    assert time.monotonic() - began < 5
    gone.set()


@pytest.fixture
def secure(certificate: tuple[str, str]) -> Iterator[tuple[Web, str]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = Web(context)
    yield server, certificate[0]
    server.close()


def test_https_trusts_what_it_is_told_to(
    secure: tuple[Web, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, certificate = secure
    with pytest.raises(SourceError, match=r"certificate is not trusted.*SSL_CERT_FILE"):
        play(server.url("plain"))
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    images, _ = play(server.url("plain"))
    assert len(images) == len(IMAGES)


def test_a_reader_can_be_closed_twice_and_read_before_it_is_open(web: Web) -> None:
    reader = make_reader(SourceSettings(uri=web.url("plain")), MonotonicClock())
    with pytest.raises(SourceError, match="not open"):
        reader.grab()
    reader.open()
    calls: list[Callable[[], object]] = [reader.close, reader.close, reader.interrupt]
    for call in calls:
        call()
    with pytest.raises(SourceError, match="not open"):
        reader.grab()
