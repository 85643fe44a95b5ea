"""A video that has an end, through PyAV: its frames, and how many of them are damaged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import av
from av.stream import Discard, Disposition

from pipeline.errors import SourceError
from pipeline.memory.frame import FrameFormat, Image, check_size
from pipeline.sources.allocations import bound_allocations
from pipeline.sources.pace import sane_rate
from pipeline.sources.pyav_frames import FrameWriter, declared_format, format_of
from pipeline.sources.settings import MAX_PIXELS, OnDamage

if TYPE_CHECKING:
    from av import Packet, VideoCodecContext, VideoFrame, VideoStream
    from av.container import InputContainer

__all__ = ["PyAVFile", "discard_others", "video_of"]

# Fewer frames than this share of the index are no end. It may list a few that are in no edit.
_LEAST_SHARE = 0.9
# Packets in a row that cannot be read before that is the end.
_MOST_BAD_READS = 16


def video_of(container: InputContainer) -> VideoStream | None:
    """The best stream of frames that play and whose coding is known; a sound's cover is none."""
    found = container.streams.best("video")
    streams = [found, *container.streams.video] if found is not None else []
    for stream in cast("list[VideoStream]", streams):
        # Without a decoder there is no context, whatever its annotation says.
        known = cast("VideoCodecContext | None", stream.codec_context) is not None
        if known and not stream.disposition & Disposition.attached_pic:
            return stream
    return None


def discard_others(container: InputContainer, stream: VideoStream) -> None:
    """Read this stream only; or HLS would load every quality."""
    for other in container.streams:
        if other is not stream:
            other.discard = Discard.all


class PyAVFile:
    """An open container that is played to its end, like an ``OpenCVCapture``.

    Frames that the decoder calls damaged are counted in ``damaged`` and, by ``on_damage``,
    handed out, skipped or a SourceError; what it cannot decode at all is counted in
    ``refused``. With more than one of ``threads`` the last frames before a cut end, one for
    each, are lost. None may have more than ``max_pixels``.
    """

    copies = 0

    def __init__(
        self,
        container: InputContainer,
        where: str,
        threads: int = 1,
        *,
        planes: bool = True,
        on_damage: OnDamage = "count",
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        self._where = where
        self._container: InputContainer | None = container
        self._on_damage = on_damage
        self.damaged = 0
        self.refused = 0
        self._broken = False  # it cannot be read any further
        self._count = 0  # packets since the start
        self._packets: Iterator[Packet[VideoStream]] | None = None
        self._decoded: deque[VideoFrame] = deque()
        self._frame: VideoFrame | None = None
        self._ended = False
        self._writer = FrameWriter(where, planes=planes)
        try:
            self._stream = self._prepare(container, threads, max_pixels)
        except BaseException:
            self.close()
            raise

    def _prepare(self, container: InputContainer, threads: int, max_pixels: int) -> VideoStream:
        if container.format.name == "tty":  # FFmpeg draws text files as frames of their text
            raise SourceError(f"{self._where}: a text file, not a video")
        stream = video_of(container)
        if stream is None:
            raise SourceError(f"{self._where}: there is no video in it that can be decoded")
        context = stream.codec_context
        if context.width and context.height:
            try:
                check_size(context.width, context.height, max_pixels)
            except SourceError as error:
                raise SourceError(f"{self._where}: {error}") from None
        discard_others(container, stream)
        # Unlike those of a live stream, frames of a file may be held back by threads.
        context.thread_type = "AUTO" if threads > 1 else "NONE"
        context.thread_count = threads
        context.options = {"max_pixels": str(max_pixels)}
        bound_allocations(max_pixels)
        return stream

    def frame_format(self) -> FrameFormat:
        """Format of the first frame; rate and number of frames as declared."""
        container, stream = self._opened(), self._stream
        rate = sane_rate(stream.average_rate or stream.guessed_rate)
        seconds = (container.duration or 0) / av.time_base
        if seconds <= 0 and stream.duration and stream.time_base:
            seconds = float(stream.duration * stream.time_base)
        frames = stream.frames or int(seconds * (rate or 0) + 0.5)
        return self._first_format()._replace(fps=rate, frames=max(0, frames) or None)

    @property
    def declared(self) -> int | None:
        """The number of frames by the container's index; None where it keeps none."""
        return self._stream.frames or None

    @property
    def broke_off(self) -> bool:
        """True if reading ended before most of what the index names had come."""
        return self._broken or self._count < self._stream.frames * _LEAST_SHARE

    def _first_format(self) -> FrameFormat:
        """Format of the first frame, more exact than the container's; it stays to be grabbed."""
        found: FrameFormat | None
        if self._writer.format is not None:
            return self._writer.format
        if self.grab() and self._frame is not None:
            self._decoded.appendleft(self._frame)
            first, self._frame = self._frame, None
            self.damaged -= first.is_corrupt  # it will be counted when it is grabbed again
            found = format_of(first, planes=self._writer.planes)
        else:
            found = declared_format(self._stream.codec_context, planes=self._writer.planes)
        if found is None:
            raise SourceError(f"{self._where}: no frame of it can be decoded")
        self._writer.format = found
        return found

    def grab(self) -> bool:
        """Advance to the next frame, past what cannot be decoded; False at the end."""
        self._opened()
        self._frame = None
        while True:
            while not self._decoded:
                if self._ended:
                    return False
                self._advance()
            frame = self._decoded.popleft()
            if frame.is_corrupt:
                self.damaged += 1
                self._fail_on_damage()
            if not frame.is_corrupt or self._on_damage == "count":
                self._frame = frame
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
        """Go back to the start; False if the file cannot."""
        container = self._opened()
        try:
            container.seek(self._stream.start_time or 0, stream=self._stream)
        except av.FFmpegError:
            return False
        self._packets = self._frame = None
        self._decoded.clear()
        self._ended = False
        self._count = 0
        return True

    def close(self) -> None:
        """Free everything; more than once does no harm."""
        self._packets = self._frame = None
        self._decoded.clear()
        container, self._container = self._container, None
        if container is not None:
            container.close()

    def _advance(self) -> None:
        """Read and decode until a packet gave frames, or to the end."""
        bad_reads = 0
        while not self._decoded:
            if self._packets is None:
                self._packets = self._opened().demux(self._stream)
            try:
                packet = next(self._packets, None)
            except (av.ExitError, TimeoutError):
                raise SourceError(f"{self._where}: nothing came in time") from None
            except (av.FFmpegError, OSError):
                bad_reads += 1
                self._packets = None
                self._refuse()
                if bad_reads < _MOST_BAD_READS:
                    continue
                packet = None
                self._broken = True
            self._ended = packet is None or packet.size == 0
            self._count += not self._ended
            if packet is not None:
                self._decode(packet)
            if self._ended:
                return

    def _decode(self, packet: Packet[VideoStream]) -> None:
        try:
            self._decoded.extend(packet.decode())
        except EOFError:
            pass
        except av.FFmpegError:
            self._refuse()

    def _refuse(self) -> None:
        self.refused += 1
        self._fail_on_damage()

    def _fail_on_damage(self) -> None:
        if self._on_damage == "fail":
            raise SourceError(f"{self._where}: a frame is damaged")

    def _opened(self) -> InputContainer:
        if self._container is None:
            raise SourceError(f"{self._where}: not open")
        return self._container
