"""A video file through PyAV, which hands out the planes that OpenCV would convert at once."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import av

from pipeline.errors import SourceError
from pipeline.frame import FrameFormat, Image
from pipeline.sources.pictures import PictureWriter, format_of, open_container

if TYPE_CHECKING:
    from av import Packet, VideoFrame, VideoStream
    from av.container import InputContainer

__all__ = ["Movie", "open_movie"]

# Packets in a row that cannot be read before that is the end.
_MOST_BAD_READS = 16


def open_movie(path: str, where: str, threads: int) -> Movie | None:
    """The file, if its pictures are kept as planes and nothing is unusual about it, else None.

    What OpenCV turns upright is left to it, and so is to say what is wrong with a file. With
    more than one of ``threads`` the last pictures before a damaged end, one for each, are lost.
    """
    try:
        container = open_container(path)
    except (av.FFmpegError, ValueError):
        return None
    try:
        # The first picture tells more than the container, and whether there is one.
        movie = Movie(container, where, threads)
        if movie.suits():
            return movie
    except (SourceError, av.FFmpegError, ValueError):
        pass
    container.close()
    return None


class Movie:
    """An open file of planes; it is played like a ``Capture``, and damage is met like there."""

    copies = 0

    def __init__(self, container: InputContainer, where: str, threads: int) -> None:
        found = container.streams.best("video")
        if found is None:
            raise SourceError(f"{where}: there is no video in it")
        self._where = where
        self._container: InputContainer | None = container
        self._stream = cast("VideoStream", found)
        # Unlike those of a live stream, frames of a file may be held back by threads.
        self._stream.codec_context.thread_type = "AUTO" if threads > 1 else "NONE"
        self._stream.codec_context.thread_count = threads
        self._packets: Iterator[Packet[VideoStream]] | None = None
        self._decoded: deque[VideoFrame] = deque()
        self._frame: VideoFrame | None = None
        self._ended = False
        self._writer = PictureWriter(where)

    def suits(self) -> bool:
        """Whether its first picture is kept as planes and upright."""
        if not self.grab() or self._frame is None:
            return False
        self._decoded.appendleft(self._frame)
        first, self._frame = self._frame, None
        self._writer.format = format_of(first)
        return self._writer.format.pixels == "i420" and first.rotation == 0

    def frame_format(self) -> FrameFormat:
        """Format of the first picture; rate and number of frames as declared."""
        container, stream = self._opened(), self._stream
        assert self._writer.format is not None
        rate = float(stream.average_rate or stream.guessed_rate or 0)
        seconds = (container.duration or 0) / av.time_base
        if seconds <= 0 and stream.duration and stream.time_base:
            seconds = float(stream.duration * stream.time_base)
        frames = stream.frames or int(seconds * rate + 0.5)
        return self._writer.format._replace(fps=rate or None, frames=max(0, frames) or None)

    def grab(self) -> bool:
        """Advance to the next frame, past what cannot be decoded; False at the end."""
        self._opened()
        self._frame = None
        while not self._decoded:
            if self._ended:
                return False
            self._advance()
        self._frame = self._decoded.popleft()
        return True

    def position_ns(self) -> int:
        """Stamp that the container gives the grabbed frame, nanoseconds from its start."""
        frame, base = self._frame, self._stream.time_base
        if frame is None or base is None:
            return 0
        stamp = frame.pts if frame.pts is not None else frame.dts
        if stamp is None:
            return 0
        return max(0, round((stamp - (self._stream.start_time or 0)) * base * 1_000_000_000))

    def retrieve(self, buffer: Image) -> None:
        """Write the planes of the grabbed frame into ``buffer``."""
        if self._frame is None:
            raise SourceError(f"{self._where}: nothing was grabbed")
        self._writer.write(self._frame, buffer)

    def rewind(self) -> bool:
        """Go back to the start; whether the file can."""
        container = self._opened()
        try:
            container.seek(self._stream.start_time or 0, stream=self._stream)
        except av.FFmpegError:
            return False
        self._packets = self._frame = None
        self._decoded.clear()
        self._ended = False
        return True

    def close(self) -> None:
        """Free everything; more than once does no harm."""
        self._packets = self._frame = None
        self._decoded.clear()
        container, self._container = self._container, None
        if container is not None:
            container.close()

    def _advance(self) -> None:
        """Read and decode until a packet gave pictures, or to the end."""
        bad_reads = 0
        while not self._decoded:
            if self._packets is None:
                self._packets = self._opened().demux(self._stream)
            try:
                packet = next(self._packets, None)
            except av.FFmpegError:
                bad_reads += 1
                self._packets = None
                if bad_reads < _MOST_BAD_READS:
                    continue
                packet = None
            self._ended = packet is None or packet.size == 0
            if packet is not None:
                self._decode(packet)
            if self._ended:
                return

    def _decode(self, packet: Packet[VideoStream]) -> None:
        # Frames that are missing are counted by the reader.
        with contextlib.suppress(av.FFmpegError, EOFError):
            self._decoded.extend(packet.decode())

    def _opened(self) -> InputContainer:
        if self._container is None:
            raise SourceError(f"{self._where}: not open")
        return self._container
