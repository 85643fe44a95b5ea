"""JPEG pictures out of a stream of bytes, whatever stands between them."""

from __future__ import annotations

import re

from pipeline.errors import SourceError

__all__ = ["JpegFinder"]

# The start of a picture is followed by tables, comments or the frame header.
_START = re.compile(rb"\xff\xd8\xff[\xc0-\xcf\xda\xdb\xdd\xe0-\xef\xfe]")
# In coded data a 0xff is followed by 0 or by a restart mark; any other mark ends the data.
_MARK = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
_LENGTH = re.compile(rb"content-length:[ \t]*(\d{1,9})\r?\n", re.IGNORECASE)
_HEAD_BYTES = 4096
_END, _SCAN = 0xD9, 0xDA


class JpegFinder:
    """Cuts whole pictures out of what it is fed.

    Each is followed from mark to mark up to its end, so neither the boundary nor its length
    need be told; where a Content-Length is, it must not be longer. One that is cut or spoilt is
    counted in ``spoilt`` and passed over. SourceError when one is larger than ``most`` bytes.
    """

    def __init__(self, where: str, most: int = 64 << 20) -> None:
        self._where = where
        self._most = most
        self._bytes = bytearray()
        self._at: int | None = None  # how far the picture at the front is known
        self._scanning = False
        self._length: int | None = None
        self.spoilt = 0

    def feed(self, data: bytes) -> None:
        """Take more of the stream."""
        self._bytes += data

    def next(self) -> bytes | None:
        """The next whole picture, or None until more is fed."""
        while True:
            if self._at is None and not self._begin():
                return None
            end = self._follow()
            if end is None:
                if len(self._bytes) > self._most:
                    raise SourceError(f"{self._where}: a picture of over {self._most} bytes")
                return None
            if end and (self._length is None or end <= self._length):
                picture = bytes(self._bytes[:end])
                self._drop(end)
                return picture
            # The start of the next one may stand in what was taken for this one's data.
            self.spoilt += 1
            self._drop(2)

    def _begin(self) -> bool:
        """Bring the start of a picture to the front."""
        found = _START.search(self._bytes)
        if found is None:
            # A start that is not all there yet, and the head that may stand before it, are kept.
            del self._bytes[:-_HEAD_BYTES]
            return False
        head = bytes(self._bytes[max(0, found.start() - _HEAD_BYTES) : found.start()])
        lengths = _LENGTH.findall(head.rpartition(b"--")[2]) if head.endswith(b"\n") else []
        self._length = int(lengths[-1]) if lengths else None
        del self._bytes[: found.start()]
        self._at, self._scanning = 2, False
        return True

    def _drop(self, count: int) -> None:
        del self._bytes[:count]
        self._at = None

    def _follow(self) -> int | None:
        """The end of the picture at the front, 0 when it is spoilt, None when more is needed."""
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
            # A length reaches over the segment that it begins.
            length = int.from_bytes(data[self._at + 2 : self._at + 4], "big")
            if mark < 0xC0 or 0xD0 <= mark < _END or length < 2:
                return 0
            if len(data) < self._at + 2 + length:
                return None
            self._at += 2 + length
            self._scanning = mark == _SCAN
