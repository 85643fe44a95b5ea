"""Kinds of still images: each shows what it holds, in a folder and by its own path."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import SourceError
from pipeline.memory.frame import Image
from pipeline.sources import make_reader
from tests.unit.playing import play, settings

WIDTH, HEIGHT = 96, 64
_Y, _X = np.mgrid[0:HEIGHT, 0:WIDTH]
IMAGE = np.dstack([_X * 255 // WIDTH, _Y * 255 // HEIGHT, _X + 2 * _Y]).astype(np.uint8)
GREY = np.asarray(cv2.cvtColor(IMAGE, cv2.COLOR_BGR2GRAY), np.uint8)
AS_GREY = np.dstack([GREY] * 3)
OTHER = np.ascontiguousarray(IMAGE[::-1, ::-1])
ALPHA = np.where(_X < WIDTH // 2, 255, 0).astype(np.uint8)
CMYK = base64.b64decode(  # 8x8, of one color: 30, 200, 90, 40 of 255
    "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwACAQEBAQECAQEBAgICAgIEAwICAgIFBAQDBAYFBgYGBQYGBgcJCAYHCQcGBggL"
    "CAkKCgoKCgYICwwLCgwJCgoK/8AAFAgACAAIBEMRAE0RAFkRAEsRAP/EABUAAQEAAAAAAAAAAAAAAAAAAAkI/8QAFBAB"
    "AAAAAAAAAAAAAAAAAAAAAP/aAA4EQwBNAFkASwAAPwBhBtqUK4//2Q=="
)


def coded(ending: str, image: Image, *options: int) -> bytes:
    ok, data = cv2.imencode(f".{ending}", image, options)
    assert ok
    return data.tobytes()


def wide(image: Image) -> Image:
    """The same with 16 bits."""
    return image.astype(np.uint16) * 257  # type: ignore[return-value]


def png(pixels: str, image: Image = AS_GREY) -> bytes:
    """A PNG whose pixels are kept so, by FFmpeg."""
    context = av.CodecContext.create("png", "w")
    frame = av.VideoFrame.from_ndarray(image, format="bgr24").reformat(format=pixels)
    context.width, context.height, context.pix_fmt = WIDTH, HEIGHT, pixels
    return b"".join(bytes(packet) for packet in [*context.encode(frame), *context.encode(None)])


def palette_png() -> bytes:
    """Each pixel is one of 256 greys of a palette, which runs backwards."""
    context = av.CodecContext.create("png", "w")
    palette = np.repeat(np.arange(256, dtype=np.uint8)[::-1, None], 4, axis=1)
    palette[:, 0] = 255
    frame = av.VideoFrame.from_ndarray((255 - GREY, palette), format="pal8")  # type: ignore[arg-type]
    context.width, context.height, context.pix_fmt = WIDTH, HEIGHT, "pal8"
    return b"".join(bytes(packet) for packet in [*context.encode(frame), *context.encode(None)])


def animated(ending: str) -> bytes:
    animation = cv2.Animation()
    animation.frames, animation.durations = [IMAGE, OTHER], [100, 100]
    ok, data = cv2.imencodeanimation(f".{ending}", animation, [cv2.IMWRITE_WEBP_QUALITY, 101])
    assert ok
    return data.tobytes()


def pages() -> bytes:
    ok, data = cv2.imencodemulti(".tif", [IMAGE, OTHER])
    assert ok
    return data.tobytes()


def jpeg(*, profile: bytes = b"", behind: bytes = b"", quality: int = 97) -> bytes:
    made = coded("jpg", IMAGE, cv2.IMWRITE_JPEG_QUALITY, quality)
    inside = b"ICC_PROFILE\0\1\1" + profile
    segment = b"\xff\xe2" + (len(inside) + 2).to_bytes(2, "big") + inside
    return made[:2] + (segment if profile else b"") + made[2:] + behind


def tiff(orientation: int, image: Image) -> bytes:
    """As a camera stores it: RGB in one strip, and how it was held."""
    height, width, _ = image.shape
    bits = 8 + 2 + 12 * 9 + 4
    strip = bits + 6
    fields = (
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, 3, bits),
        (262, 3, 1, 2),
        (273, 4, 1, strip),
        (274, 3, 1, orientation),
        (277, 3, 1, 3),
        (278, 4, 1, height),
        (279, 4, 1, image.size),
    )
    entries = b"".join(struct.pack("<HHII", *field) for field in fields)
    head = struct.pack("<4sIH", b"II*\0", 8, len(fields)) + entries + bytes(4)
    return head + struct.pack("<3H", 8, 8, 8) + image[..., ::-1].tobytes()


def shown(folder: Path, name: str, data: bytes, *, alone: bool) -> Image:
    """The one frame of an image."""
    (folder / name).write_bytes(data)
    given = settings(folder / name if alone else folder)
    ((frame,), error) = play(make_reader(given, MonotonicClock()))
    assert error is None
    return frame


either_way = pytest.mark.parametrize("alone", [False, True], ids=["folder", "path"])


@either_way
@pytest.mark.parametrize(
    ("name", "make", "expected"),
    [
        ("bmp.bmp", lambda: coded("bmp", IMAGE), IMAGE),
        ("colors.ppm", lambda: coded("ppm", IMAGE), IMAGE),
        ("grey.pgm", lambda: coded("pgm", GREY), AS_GREY),
        ("grey.jpg", lambda: coded("jpg", GREY, cv2.IMWRITE_JPEG_QUALITY, 97), AS_GREY),
        ("grey.png", lambda: png("gray"), AS_GREY),
        ("grey16.png", lambda: coded("png", wide(GREY)), AS_GREY),
        ("grey+alpha.png", lambda: png("ya8"), AS_GREY),
        ("alpha.png", lambda: coded("png", np.dstack([IMAGE, ALPHA])), IMAGE),
        ("alpha.webp", lambda: coded("webp", np.dstack([IMAGE, ALPHA | 1])), IMAGE),
        ("palette.png", palette_png, AS_GREY),
        ("16bit.png", lambda: coded("png", wide(IMAGE)), IMAGE),
        ("16bit.tif", lambda: coded("tif", wide(IMAGE)), IMAGE),
        ("UPPER.JPG", jpeg, IMAGE),
        (
            "progressive.jpg",
            lambda: coded("jpg", IMAGE, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
            IMAGE,
        ),
        ("profile.jpg", lambda: jpeg(profile=b"no real one"), IMAGE),
        ("zeros-behind.jpg", lambda: jpeg(behind=bytes(5000)), IMAGE),
        ("two-in-one.jpg", lambda: jpeg(behind=coded("jpg", OTHER)), IMAGE),
        ("animated.png", lambda: animated("png"), IMAGE),
        ("animated.webp", lambda: animated("webp"), IMAGE),
        ("pages.tif", pages, IMAGE),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_image_shows_what_it_holds(
    tmp_path: Path, name: str, make: Callable[[], bytes], expected: Image, alone: bool
) -> None:
    frame = shown(tmp_path, name, make(), alone=alone)
    apart = np.abs(frame.astype(int) - expected)
    assert apart.mean() < 3


@either_way
def test_four_inks_become_colors(tmp_path: Path, alone: bool) -> None:
    frame = shown(tmp_path, "inks.jpg", CMYK, alone=alone)
    expected = [round((255 - ink) * (255 - 40) / 255) for ink in (90, 200, 30)]
    assert np.abs(frame.astype(int) - expected).max() <= 3


@either_way
@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_turned_upright_from_how_it_was_held(
    tmp_path: Path, ending: str, orientation: int, alone: bool
) -> None:
    stored = STORED[orientation](IMAGE)
    if ending == "tif":
        data = tiff(orientation, stored)
    else:
        exif = struct.pack("<4sIHHHIHHI", b"II*\0", 8, 1, 0x112, 3, 1, orientation, 0, 0)
        metadata = [np.frombuffer(exif, np.uint8)]
        kinds = [cv2.IMAGE_METADATA_EXIF]
        ok, made = cv2.imencodeWithMetadata(f".{ending}", stored, kinds, metadata)
        assert ok
        data = made.tobytes()
    frame = shown(tmp_path, f"held.{ending}", data, alone=alone)
    assert frame.shape == IMAGE.shape
    assert np.abs(frame.astype(int) - IMAGE).mean() < 5


# How each of EXIF's orientations stores an image that is upright.
STORED: dict[int, Callable[[Image], Image]] = {
    1: lambda image: image,
    2: lambda image: np.ascontiguousarray(image[:, ::-1]),
    3: lambda image: np.ascontiguousarray(image[::-1, ::-1]),
    4: lambda image: np.ascontiguousarray(image[::-1]),
    5: lambda image: np.ascontiguousarray(image.swapaxes(0, 1)),
    6: lambda image: np.ascontiguousarray(image.swapaxes(0, 1)[::-1]),
    7: lambda image: np.ascontiguousarray(image.swapaxes(0, 1)[::-1, ::-1]),
    8: lambda image: np.ascontiguousarray(image.swapaxes(0, 1)[:, ::-1]),
}


@either_way
@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("half.jpg", jpeg()[: len(jpeg()) // 2], "the image is cut off"),
        ("half.png", coded("png", IMAGE)[:2000], "not an image that can be decoded"),
        ("half.webp", coded("webp", IMAGE)[:-30], "not an image that can be decoded"),
        ("floats.tif", coded("tif", IMAGE.astype(np.float32)), "not an image that can be"),
        ("empty.png", b"", "not an image that can be decoded"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else "",
)
def test_what_is_no_whole_image_is_named(
    tmp_path: Path, name: str, data: bytes, told: str, alone: bool
) -> None:
    with pytest.raises(SourceError, match=rf"{name}: {told}"):
        shown(tmp_path, name, data, alone=alone)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"gone\.jpg: No such file"):
        make_reader(settings(tmp_path / "gone.jpg"), MonotonicClock()).open()
