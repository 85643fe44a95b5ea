"""JPEG images out of a stream of bytes, whatever stands between them."""

from __future__ import annotations

import re

from pipeline.errors import SourceError
from pipeline.memory.frame import check_size
from pipeline.sources.settings import MAX_PIXELS

__all__ = ["JpegFinder"]

# The start of an image is followed by tables, comments or the frame header.
_START = re.compile(rb"\xff\xd8\xff[\xc0-\xcf\xda\xdb\xdd\xe0-\xef\xfe]")
# In coded data a 0xff is followed by 0 or by a restart mark; any other mark ends the data.
_MARK = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
_LENGTH = re.compile(rb"content-length:[ \t]*(\d{1,9})\r?\n", re.IGNORECASE)
_HEAD_BYTES = 4096
_END, _SCAN = 0xD9, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # marks that announce a size
# Starts that are tried inside of what one spoilt image was followed over. A few are right: the
# next image may begin there. As each may lead over all of it, more would take quadratic time.
_MOST_STARTS = 8
_LARGEST = 64 << 20


class JpegFinder:
    """Cuts whole images out of what it is fed.

    Each is followed from mark to mark up to its end, so neither the boundary nor its length
    need be known; if there is a Content-Length, it must not be longer. One that is cut or spoilt is
    counted in ``spoilt`` and skipped. SourceError when one announces more than
    ``max_pixels``, or is larger than ``most`` bytes, by default what so many pixels can take.
    Takes time and memory in proportion to what it is fed.
    """

    def __init__(self, where: str, most: int | None = None, max_pixels: int = MAX_PIXELS) -> None:
        self._where = where
        self._most = min(_LARGEST, 4 * max_pixels + 65536) if most is None else most
        self._max_pixels = max_pixels
        self._bytes = bytearray()
        self._at: int | None = None  # how far the image at the front is known
        self._scanning = False
        self._size = (1, 1)  # width and height that it announces
        self._length: int | None = None
        self._starts = 0  # tried in what was followed already, the first ``_known`` bytes
        self._known = 0
        self.spoilt = 0

    def feed(self, data: bytes) -> None:
        """Take more of the stream."""
        self._bytes += data

    def next(self) -> bytes | None:
        """The next whole image, or None until more is fed."""
        while True:
            if self._at is None and not self._begin():
                return None
            end = self._follow()
            if end is None:
                if len(self._bytes) > self._most:
                    raise SourceError(f"{self._where}: an image of over {self._most} bytes")
                return None
            if end and (self._length is None or end <= self._length):
                self._check_size()
                image = bytes(self._bytes[:end])
                self._drop(end)
                return image
            # The start of the next one may stand in what was taken for this one's data.
            self.spoilt += 1
            self._known = max(self._known, self._at or 0)
            self._starts += 1
            self._drop(2 if self._starts < _MOST_STARTS else max(2, self._known))

    def _begin(self) -> bool:
        """Bring the start of an image to the front."""
        found = _START.search(self._bytes)
        if found is None:
            # A start that is not all there yet, and the head that may stand before it, are kept.
            self._forget(max(0, len(self._bytes) - _HEAD_BYTES))
            return False
        head = bytes(self._bytes[max(0, found.start() - _HEAD_BYTES) : found.start()])
        lengths = _LENGTH.findall(head.rpartition(b"--")[2]) if head.endswith(b"\n") else []
        self._length = int(lengths[-1]) if lengths else None
        self._forget(found.start())
        self._at, self._scanning, self._size = 2, False, (1, 1)
        return True

    def _drop(self, count: int) -> None:
        self._forget(count)
        self._at = None

    def _forget(self, count: int) -> None:
        del self._bytes[:count]
        self._known = max(0, self._known - count)
        if not self._known:
            self._starts = 0

    def _follow(self) -> int | None:
        """The end of the image at the front, 0 when it is spoilt, None when more is needed."""
        data = self._bytes
        assert self._at is not None
        while True:
            if self._scanning:
                found = _MARK.search(data, self._at)
                if found is None:
                    self._at = max(self._at, len(data) - 1)
                    return None
                self._at, self._scanning = found.start(), False
            if len(data) < self._at + 4:
                ended = len(data) >= self._at + 2 and data[self._at + 1] == _END
                return self._at + 2 if ended and data[self._at] == 0xFF else None
            mark = data[self._at + 1]
            if data[self._at] != 0xFF:
                return 0
            if mark == _END:
                return self._at + 2
            if mark == 0xFF:  # marks may be filled up
                self._at += 1
                continue
            passed = self._pass_segment(mark)
            if not passed:
                return passed

    def _pass_segment(self, mark: int) -> int | None:
        """Go behind the segment of this mark: 1, 0 when it is spoilt, None when more is needed."""
        assert self._at is not None
        # A length reaches over the segment that it begins.
        length = self._two(self._at + 2)
        if mark < 0xC0 or 0xD0 <= mark < _END or length < 2:
            return 0
        if len(self._bytes) < self._at + 2 + length:
            return None
        if mark in _FRAMES:
            height, width = self._two(self._at + 5), self._two(self._at + 7)
            self._size = (max(1, width), max(1, height))
        self._at += 2 + length
        self._scanning = mark == _SCAN
        return 1

    def _two(self, at: int) -> int:
        return int.from_bytes(self._bytes[at : at + 2], "big")

    def _check_size(self) -> None:
        try:
            check_size(*self._size, self._max_pixels)
        except SourceError as error:
            raise SourceError(f"{self._where}: {error}") from None
