"""MJPEG cameras that are odd but right: each kind of stream and of frame plays."""

from __future__ import annotations

import socket

import cv2
import numpy as np
import pytest

from pipeline.clock import MonotonicClock
from pipeline.contracts import Reader
from pipeline.errors import FormatChangedError, SourceError
from pipeline.memory.frame import Image
from pipeline.sources import SourceSettings, make_reader
from pipeline.sources.synthetic import synthetic_frame
from tests.buffers import Buffer
from tests.servers.raw import RawServer, read_head

pytestmark = pytest.mark.usefixtures("small_planes")

SIZE = (64, 48)


def jpeg(image: Image, *options: int) -> bytes:
    ok, data = cv2.imencode(".jpg", image, options)
    assert ok
    return data.tobytes()


def make_images(width: int = 64, height: int = 48, *options: int) -> list[bytes]:
    return [jpeg(synthetic_frame(number, width, height), *options) for number in range(4)]


def without_tables(coded: bytes) -> bytes:
    """As webcams of the kind AVI1 send it: the usual Huffman tables are left out."""
    kept, at = coded[:2], 2
    while coded[at + 1] != 0xDA:
        length = 2 + int.from_bytes(coded[at + 2 : at + 4], "big")
        kept += b"" if coded[at + 1] == 0xC4 else coded[at : at + length]
        at += length
    return kept + coded[at:]


def with_thumbnail(coded: bytes) -> bytes:
    inside = b"Exif\0\0" + make_images(16, 16)[0]
    return coded[:2] + b"\xff\xe1" + (len(inside) + 2).to_bytes(2, "big") + inside + coded[2:]


def played(kind: str, stream: bytes) -> list[Image]:
    """Every frame of an answer with this Content-Type, through changes of its format."""

    def answer(link: socket.socket) -> None:
        if read_head(link):
            link.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: " + kind.encode() + b"\r\n\r\n" + stream
            )

    images: list[Image] = []
    with RawServer(answer) as server:
        url = f"http://127.0.0.1:{server.port}/live"
        reader = make_reader(SourceSettings(uri=url), MonotonicClock())
        buffer = Buffer(reader.open())
        while _grabbed(reader):
            try:
                images.append(buffer.retrieve(reader).copy())
            except FormatChangedError as error:
                buffer = Buffer(error.format)
                images.append(buffer.retrieve(reader).copy())
        reader.close()
    return images


def _grabbed(reader: Reader) -> bool:
    """Go on to the next frame; False when the stream ended."""
    try:
        return reader.grab() is not None
    except SourceError as error:
        if "the stream ended" in str(error):
            return False
        raise


def stream(
    parts: list[bytes], line: bytes = b"\r\n", *, length: int | None = 0, tail: bytes = b"\r\n"
) -> bytes:
    """Parts behind a boundary; ``length`` is added to what each declares, None declares none."""
    whole = b""
    for part in parts:
        head = b"--b" + line + b"Content-Type: image/jpeg" + line
        if length is not None:
            head += b"Content-Length: %d" % (len(part) + length) + line
        whole += head + line + part + tail
    return whole


MIXED = "multipart/x-mixed-replace; boundary=b"


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("multipart/x-mixed-replace; boundary=--b", stream(make_images())),
        ('multipart/x-mixed-replace; boundary="b"', stream(make_images())),
        ("multipart/x-mixed-replace", stream(make_images())),
        ("multipart/mixed; boundary=another", stream(make_images())),
        ("Multipart/X-Mixed-Replace;boundary=b", stream(make_images())),
        (MIXED, stream(make_images(), b"\n")),
        (MIXED, stream(make_images(), length=None)),
        (MIXED, stream(make_images(), length=None, tail=b"")),
        (MIXED, stream(make_images(), length=2)),
        (MIXED, stream(make_images(), length=200, tail=bytes(200) + b"\r\n")),
        (MIXED, stream(make_images(), length=16, tail=b"\xff" * 16 + b"\r\n")),
        (MIXED, b"".join(make_images())),
        (
            MIXED,
            b"--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n".join(
                map(bytes, [b"", *make_images()])
            ),
        ),
    ],
)
def test_streams_of_every_make_play(kind: str, sent: bytes) -> None:
    images = played(kind, sent)
    assert [image.shape for image in images] == [(48, 64, 3)] * 4
    for number, image in enumerate(images):
        assert np.abs(image.astype(int) - synthetic_frame(number, *SIZE)).mean() < 6


@pytest.mark.parametrize(
    "made",
    [
        [without_tables(coded) for coded in make_images()],
        [with_thumbnail(coded) for coded in make_images()],
        make_images(64, 48, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
        *(
            make_images(64, 48, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor)
            for factor in (0x111111, 0x121111, 0x211111, 0x411111)
        ),
    ],
    ids=["no-tables", "thumbnail", "progressive", "444", "440", "422", "411"],
)
def test_images_of_every_make_play(made: list[bytes]) -> None:
    images = played(MIXED, stream(made))
    assert len(images) == len(made)
    for number, image in enumerate(images):
        assert np.abs(image.astype(int) - synthetic_frame(number, *SIZE)).mean() < 8


def test_grey_images_play() -> None:
    grey = [cv2.cvtColor(synthetic_frame(n, *SIZE), cv2.COLOR_BGR2GRAY) for n in range(4)]
    images = played(MIXED, stream([jpeg(np.asarray(image, np.uint8)) for image in grey]))
    for image, expected in zip(images, grey, strict=True):
        assert np.abs(image.astype(int) - expected[..., None]).mean() < 3


def test_images_of_changing_sizes_all_come() -> None:
    sizes = [(64, 48), (1, 1), (64, 48), (33, 17), (2, 2), (64, 48), (640, 1), (1, 480)]
    made = [jpeg(synthetic_frame(n, *size)) for n, size in enumerate(sizes)]
    images = played(MIXED, stream(made))
    assert [image.shape[1::-1] for image in images] == sizes
