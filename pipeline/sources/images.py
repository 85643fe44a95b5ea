"""A folder of images, in natural order (2.png before 10.png), or a single one."""

from __future__ import annotations

import logging
import os
import re
import threading
from typing import TYPE_CHECKING

import numpy as np

from pipeline.clock import Clock
from pipeline.errors import SourceError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.redact import redact
from pipeline.sources.opencv_reader import deliver
from pipeline.sources.pace import DEFAULT_FPS, Pace
from pipeline.sources.settings import IMAGE_ENDINGS, SourceSettings
from pipeline.sources.stills import read_still

if TYPE_CHECKING:
    from av import VideoFrame

_log = logging.getLogger(__name__)

__all__ = ["ImagesReader", "natural_key"]


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sort key that compares runs of digits as numbers and letters without case."""
    parts = re.split(r"([0-9]+)", name)
    return [(1, int(p), p) if p[0] in "0123456789" else (0, 0, p.casefold()) for p in parts if p]


class ImagesReader:
    """One image, or those directly inside a folder, implementing ``Reader``.

    Hidden files and other endings than ``IMAGE_ENDINGS`` are skipped. Of an animated image
    or one of several pages the first is taken. Each is decoded when it is grabbed, into memory
    of its own, and copied once. With ``realtime`` they come at ``fps`` (30 if not set), else as
    read. One that is damaged is a SourceError unless ``on_damage`` says otherwise; one that
    cannot be decoded at all is skipped with ``drop`` only.
    """

    live = False

    def __init__(self, settings: SourceSettings, clock: Clock) -> None:
        self._folder = str(settings.uri)
        self._where = redact(self._folder)
        self._clock = clock
        self._loop = settings.loop
        self._fps = settings.fps or (DEFAULT_FPS if settings.realtime else None)
        self._pace = Pace(clock, self._fps) if settings.realtime else None
        self._max_pixels = settings.max_pixels
        self._on_damage = settings.on_damage or "fail"
        self._stop = threading.Event()
        self._paths: list[str] = []
        self._next = 0
        self._first: Image | VideoFrame | None = None
        self._grabbed: tuple[str, Image | VideoFrame] | None = None
        self.damaged = 0

    def open(self) -> FrameFormat:
        """List the folder and read its first image."""
        self._paths = self._list()
        self._next = 0
        first = self._load()
        if first is None:
            raise SourceError(f"{self._where}: no image of it can be decoded")
        self._first = first
        count = None if self._loop else len(self._paths)
        return _format_of(first)._replace(fps=self._fps, frames=count)

    def _list(self) -> list[str]:
        if self._folder.lower().endswith(IMAGE_ENDINGS) and not os.path.isdir(self._folder):
            return [self._folder]
        try:
            names = [entry.name for entry in os.scandir(self._folder) if entry.is_file()]
        except FileNotFoundError:
            raise SourceError(f"{self._where}: no such folder") from None
        except OSError as error:
            raise SourceError(f"{self._where}: {error.strerror}") from error
        names = [n for n in names if n.lower().endswith(IMAGE_ENDINGS) and not n.startswith(".")]
        if not names:
            endings = ", ".join(IMAGE_ENDINGS)
            raise SourceError(f"{self._where}: no image in this folder ({endings})")
        names.sort(key=lambda name: (natural_key(name), name))
        return [os.path.join(self._folder, name) for name in names]

    def grab(self) -> int | None:
        """Go to the next image; its stamp, or None after the last."""
        if self._stop.is_set() or not self._paths:
            return None
        image, self._first = self._first, None
        if image is None:
            image = self._load()
        if image is None:
            return None
        self._grabbed = self._paths[self._next - 1], image
        return self._clock.now() if self._pace is None else self._pace.wait(self._stop)

    def retrieve(self, buffer: Image) -> None:
        """Copy the image into ``buffer``; FormatChangedError when it is of another size."""
        if self._grabbed is None:
            raise SourceError(f"{self._where}: nothing was grabbed")
        path, image = self._grabbed
        if isinstance(image, np.ndarray):
            deliver(redact(path), image, buffer)
        else:
            from pipeline.sources.pyav_frames import FrameWriter

            FrameWriter(redact(path), planes=False, upright=True).write(image, buffer)

    def interrupt(self) -> None:
        """Make ``grab`` return None from now on."""
        self._stop.set()

    def close(self) -> None:
        """Forget the folder."""
        self._paths = []
        self._grabbed = self._first = None

    def _load(self) -> Image | VideoFrame | None:
        """Decode the next image that is wanted; None after the last."""
        for _ in self._paths:
            if self._next >= len(self._paths):
                if not self._loop:
                    return None
                self._next = 0
            path = self._paths[self._next]
            self._next += 1
            try:
                image, damage = read_still(path, redact(path), self._max_pixels)
                if not damage:
                    return image
                self.damaged += 1
                if self._on_damage == "count":
                    return image
                raise SourceError(f"{redact(path)}: {damage}")
            except SourceError as error:
                if self._on_damage != "drop":
                    raise
                _log.warning("%s; skipped", error)
        return None


def _format_of(image: Image | VideoFrame) -> FrameFormat:
    if isinstance(image, np.ndarray):
        return FrameFormat(image.shape[1], image.shape[0])
    from pipeline.sources.orientation import UPRIGHT
    from pipeline.sources.pyav_frames import format_of

    return format_of(image, planes=False, orientation=UPRIGHT)
