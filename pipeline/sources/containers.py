"""The structure of a video file, to tell a cut file from one that ended.

The frame count that OpenCV reports is often an estimate. The structure of the common
containers is not: each part begins with its size, so a file that stops before the last part
ends was cut.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO, NamedTuple

__all__ = ["Container", "inspect"]


class Container(NamedTuple):
    """``cut``: bytes are missing at the end; None if the format does not show it."""

    cut: bool | None = None


def inspect(path: str) -> Container:
    """Read the outer structure of MP4/MOV, AVI and Matroska/WebM files; never raises."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(12)
            if head[4:8] in (b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip"):
                return _iso(file, size)
            if head[:4] == b"RIFF":
                return Container(_riff_end(file, size) > size)
            if head[:4] == b"\x1a\x45\xdf\xa3":
                return _matroska(file, size)
    except (OSError, struct.error):
        pass
    return Container()


def _iso(file: BinaryIO, size: int) -> Container:
    offset = 0
    while offset + 8 <= size:
        file.seek(offset)
        (length,) = struct.unpack(">I4x", file.read(8))
        if length == 1:
            (length,) = struct.unpack(">Q", file.read(8))
        if length < 8:  # 0: up to the end of the file, however long
            return Container()
        offset += length
    return Container(offset != size)


def _riff_end(file: BinaryIO, size: int) -> int:
    """End of the last RIFF chunk; files over 1 GB have several."""
    end = 0
    while end + 12 <= size:
        file.seek(end)
        kind, length = struct.unpack("<4sI", file.read(8))
        if kind != b"RIFF":
            break
        end += 8 + length
    return end


def _matroska(file: BinaryIO, size: int) -> Container:
    file.seek(4)
    header = _vint(file)
    if header is None:
        return Container()
    file.seek(header, os.SEEK_CUR)
    if file.read(4) != b"\x18\x53\x80\x67":
        return Container()
    segment = _vint(file)
    return Container(None if segment is None else file.tell() + segment > size)


def _vint(file: BinaryIO) -> int | None:
    """A Matroska size; None for "unknown", which live recordings have."""
    first = file.read(1)
    if not first or first[0] == 0:
        return None
    length = 9 - first[0].bit_length()
    rest = file.read(length - 1)
    if len(rest) != length - 1:
        return None
    bits = 7 * length
    value = int.from_bytes(first + rest, "big") & ((1 << bits) - 1)
    return None if value == (1 << bits) - 1 else value
