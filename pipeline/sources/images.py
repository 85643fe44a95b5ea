"""A folder of images, in natural order (2.png before 10.png)."""

from __future__ import annotations

import os
import re
import threading

import cv2
import numpy as np

from pipeline.clock import Clock
from pipeline.errors import SourceError
from pipeline.frame import FrameFormat, Image
from pipeline.locate import redact
from pipeline.sources.capture import deliver
from pipeline.sources.pace import DEFAULT_FPS, Pace
from pipeline.sources.settings import SourceSettings
from pipeline.sources.videoio import error_line, quiet_opencv

__all__ = ["ENDINGS", "ImagesReader", "natural_key"]

ENDINGS = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sort key that compares runs of digits as numbers and letters without case."""
    parts = re.split(r"([0-9]+)", name)
    return [(1, int(p), p) if p[0] in "0123456789" else (0, 0, p.casefold()) for p in parts if p]


class ImagesReader:
    """The images directly inside a folder, implementing ``Reader``.

    All must have the first one's size. Hidden files and other endings than ``ENDINGS`` are
    passed over. Each is decoded into memory of its own and copied once. With ``realtime``
    they come at ``fps`` (30 if not set), else as read.
    """

    live = False

    def __init__(self, settings: SourceSettings, clock: Clock) -> None:
        self._folder = str(settings.uri)
        self._where = redact(self._folder)
        self._clock = clock
        self._loop = settings.loop
        self._fps = settings.fps or (DEFAULT_FPS if settings.realtime else None)
        self._pace = Pace(clock, self._fps) if settings.realtime else None
        self._stop = threading.Event()
        self._paths: list[str] = []
        self._next = 0
        self._grabbed: str | None = None

    def open(self) -> FrameFormat:
        """List the folder and read the size of its first image."""
        try:
            names = [entry.name for entry in os.scandir(self._folder) if entry.is_file()]
        except FileNotFoundError:
            raise SourceError(f"{self._where}: no such folder") from None
        except OSError as error:
            raise SourceError(f"{self._where}: {error.strerror}") from error
        names = [n for n in names if n.lower().endswith(ENDINGS) and not n.startswith(".")]
        if not names:
            raise SourceError(f"{self._where}: no image in this folder ({', '.join(ENDINGS)})")
        names.sort(key=lambda name: (natural_key(name), name))
        self._paths = [os.path.join(self._folder, name) for name in names]
        self._next = 0
        first = _read(self._paths[0])
        count = None if self._loop else len(names)
        return FrameFormat(first.shape[1], first.shape[0], self._fps, count)

    def grab(self) -> int | None:
        """Go to the next image; its stamp, or None after the last."""
        if self._stop.is_set() or not self._paths:
            return None
        if self._next >= len(self._paths):
            if not self._loop:
                return None
            self._next = 0
        self._grabbed = self._paths[self._next]
        self._next += 1
        return self._clock.now() if self._pace is None else self._pace.wait(self._stop)

    def retrieve(self, buffer: Image) -> None:
        """Decode the image into ``buffer``; SourceError naming the file when it cannot be."""
        if self._grabbed is None:
            raise SourceError(f"{self._where}: nothing was grabbed")
        deliver(redact(self._grabbed), _read(self._grabbed), buffer)

    def interrupt(self) -> None:
        """Make ``grab`` return None from now on."""
        self._stop.set()

    def close(self) -> None:
        """Forget the folder."""
        self._paths = []
        self._grabbed = None


def _read(path: str) -> Image:
    # Not into the buffer: given one, imread leaves it as it was and says nothing when it fails.
    where = redact(path)
    try:
        with open(path, "rb") as file:
            whole = _jpeg_is_whole(file.read())
        with quiet_opencv():
            image = cv2.imread(path, cv2.IMREAD_COLOR)
    except OSError as error:
        raise SourceError(f"{where}: {error.strerror}") from error
    except cv2.error as error:
        raise SourceError(
            f"{where}: not an image that can be decoded: {error_line(error)}"
        ) from error
    if image is None or image.size == 0:
        raise SourceError(f"{where}: not an image that can be decoded")
    if not whole:
        raise SourceError(f"{where}: the image is cut off")
    return np.asarray(image, np.uint8)


def _jpeg_is_whole(data: bytes) -> bool:
    """False for a JPEG without its end, which decoders fill with grey and do not report."""
    if data[:2] != b"\xff\xd8":
        return True
    at = 2
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] != b"\xda":
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return data.find(b"\xff\xd9", at) >= 0
