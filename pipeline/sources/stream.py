"""Network streams through FFmpeg: rtsp://, HLS and whatever else it opens by URL."""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import av

from pipeline.clock import Clock
from pipeline.errors import SourceError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.redact import redact_uri
from pipeline.sources.allocations import bound_allocations
from pipeline.sources.pace import sane_rate
from pipeline.sources.pyav_file import discard_others, video_of
from pipeline.sources.pyav_frames import (
    Damage,
    FrameWriter,
    declared_format,
    format_of,
    open_container,
    strict_decoder,
)
from pipeline.sources.rtsp_probe import PROBED, RtspProbe
from pipeline.sources.settings import SourceSettings
from pipeline.sources.tcp import TcpStream, tcp_of
from pipeline.sources.udp import FirstDatagram

if TYPE_CHECKING:
    from av import Packet, VideoFrame, VideoStream
    from av.container import InputContainer

__all__ = ["StreamReader", "has_end", "is_rtsp", "reach"]

# RTSP goes on after a read that was broken off, so it is broken off often to hear ``interrupt``.
# Everything else would take that for the end of the stream.
_SLICE_SECONDS = 0.3
# Enough to find the rate; a size that is not known by then comes with the first frame.
_PROBE_MICROSECONDS = "100000"


def reach(
    settings: SourceSettings, *, sliced: bool = False, tcp: TcpStream | None = None
) -> InputContainer | str:
    """Open the URL; else why that failed, in words without secrets.

    ``sliced``: reads are broken off every now and then, see ``_SLICE_SECONDS``. ``tcp`` is what
    connects in place of FFmpeg.
    """
    url, seconds, read = str(settings.uri), settings.open_timeout_s, settings.read_timeout_s
    options = {"analyzeduration": _PROBE_MICROSECONDS}
    if is_rtsp(url):
        options |= {"rtsp_transport": settings.transport, "allowed_media_types": "video"}
    if sliced:
        read = min(_SLICE_SECONDS, read)
    began = time.monotonic()
    bound_allocations(settings.max_pixels)
    try:
        if tcp is not None:
            return tcp.connect(options=options)
        return open_container(url, options=options, timeout=(seconds, read))
    except (av.FFmpegError, OSError, ValueError) as error:
        # Some of FFmpeg's readers say that the data are invalid when they were broken off.
        late = isinstance(error, av.ExitError | TimeoutError)
        if late or time.monotonic() - began >= seconds:
            return f"it did not answer within {seconds:g} s"
        return _why(error, settings)


def has_end(container: InputContainer) -> bool:
    """True for a file, which declares how long it plays or how large it is."""
    sized = container.format.name != "hls" and container.size > 0  # that is the list's size
    return sized or (container.duration or 0) > 0


def is_rtsp(url: str) -> bool:
    """True for an RTSP URL, plain or over TLS."""
    return url.lower().startswith(("rtsp://", "rtsps://"))


def _why(error: Exception, settings: SourceSettings) -> str:
    if isinstance(error, av.HTTPUnauthorizedError):
        return "the user or the password is wrong"
    if isinstance(error, av.ProtocolNotFoundError):
        return "FFmpeg does not know such URLs"
    refused = getattr(error, "errno", None) == errno.EPROTONOSUPPORT
    if refused and is_rtsp(str(settings.uri)):
        return f"the server does not send over {settings.transport}; set transport to the other"
    strerror = getattr(error, "strerror", None)
    return f"it cannot be opened: {strerror}" if strerror else "it cannot be opened"


class StreamReader:
    """Frames of one stream, stamped when they arrived; implements ``Reader``.

    A stream that stops is a SourceError, unless it is a file of a declared length that was
    played to its end. So is one of which no whole frame comes for the read timeout. Damaged
    frames are skipped up to the next key frame, since those between build on them.
    ``interrupt`` is heard at once with TCP, within 0.3 s with RTSP, else when something comes or
    the read timeout is over.
    """

    live = True

    def __init__(
        self, settings: SourceSettings, clock: Clock, container: InputContainer | None = None
    ) -> None:
        self._url = str(settings.uri)
        self._where = redact_uri(self._url)
        self._clock = clock
        self._settings = settings
        self._open_seconds = settings.open_timeout_s
        self._read_seconds = settings.read_timeout_s
        self._stop = threading.Event()
        self._tcp = tcp_of(settings)
        scheme = self._url.partition("://")[0].lower()
        makers: dict[str, Callable[[str], RtspProbe | FirstDatagram]]
        makers = {"udp": FirstDatagram, **dict.fromkeys(PROBED, RtspProbe)}
        self._knock = makers[scheme](self._url) if scheme in makers else None
        self._container = container  # one that was reached already
        self._stream: VideoStream | None = None
        self._packets: Iterator[Packet[VideoStream]] | None = None
        self._decoded: deque[VideoFrame] = deque()
        self._frame: VideoFrame | None = None
        self._writer = FrameWriter(self._where, planes=settings.pixels == "auto")
        self._damage = Damage(self._where)
        self._broken = False
        self._declared = 0
        self._delivered = 0

    def open(self) -> FrameFormat:
        """Connect. SourceError when nothing answers in time or no video comes."""
        deadline = time.monotonic() + self._open_seconds
        found = None
        failure = None if self._knock is None else self._knock.ask(self._open_seconds)
        if failure is None:
            failure = self._connect()
        if failure is None:
            stream = self._opened()[1]
            strict_decoder(stream.codec_context, self._settings.max_pixels)
            found = declared_format(stream.codec_context, planes=self._writer.planes)
            if found is None:
                found, failure = self._first_format(deadline)
        if failure is not None or found is None:
            # Not raised where it is caught: PyAV's own error holds the URL with its password.
            self.close()
            raise SourceError(f"{self._where}: {failure}")
        fps = sane_rate(stream.average_rate or stream.guessed_rate)
        self._declared = stream.frames
        if not self._declared and stream.duration and stream.time_base and fps:
            self._declared = round(float(stream.duration * stream.time_base) * fps)
        self._writer.format = found
        return found._replace(fps=fps, frames=self._declared or None)

    def grab(self) -> int | None:
        """Wait for the next whole frame; SourceError when the stream stopped."""
        self._opened()
        self._frame = None
        deadline = time.monotonic() + self._read_seconds
        while not self._stop.is_set():
            if self._decoded:
                frame = self._decoded.popleft()
                self._delivered += 1
                if self._is_whole(frame):
                    self._frame = frame
                    return self._clock.now()
            elif not self._advance():
                if self._stop.is_set() or 0 < self._declared <= self._delivered:
                    break
                raise SourceError(f"{self._where}: {self._told('the stream stopped')}")
            # Looked at after a frame, too: a stream of damage alone is lost.
            if time.monotonic() > deadline and not self._stop.is_set():
                told = self._told(f"no whole frame came for {self._read_seconds:g} s")
                raise SourceError(f"{self._where}: {told}")
        return None

    def retrieve(self, buffer: Image) -> None:
        """Write the grabbed frame into ``buffer``; FormatChangedError when that does not fit."""
        if self._frame is None:
            self._opened()
            raise SourceError(f"{self._where}: nothing was grabbed")
        self._writer.write(self._frame, buffer)

    @property
    def damaged(self) -> int:
        """Frames that were skipped."""
        return self._damage.count

    def interrupt(self) -> None:
        """Make ``grab`` return None from now on; see the class for how soon."""
        self._stop.set()
        for waiting in (self._knock, self._tcp):
            if waiting is not None:
                waiting.interrupt()

    def close(self) -> None:
        """Disconnect. Only where ``grab`` is called: it must not be in a read."""
        self._packets = self._frame = self._stream = None
        self._decoded.clear()
        container, self._container = self._container, None
        if container is not None:
            container.close()
        if self._tcp is not None:
            self._tcp.close()

    def _connect(self) -> str | None:
        """Open the container, unless that was done; why that failed."""
        if self._container is None:
            reached = reach(self._settings, sliced=is_rtsp(self._url), tcp=self._tcp)
            if isinstance(reached, str):
                return reached
            self._container = reached
        self._stream = video_of(self._container)
        if self._stream is None:
            return "there is no video in it that can be decoded"
        discard_others(self._container, self._stream)
        return None

    def _first_format(self, deadline: float) -> tuple[FrameFormat | None, str | None]:
        """Format of the first frame, which stays to be grabbed; or what failed."""
        while not self._decoded:
            if self._stop.is_set() or time.monotonic() > deadline:
                return None, f"no frame came within {self._open_seconds:g} s"
            if not self._advance():
                return None, "it ended before its first frame"
        return format_of(self._decoded[0], planes=self._writer.planes), None

    def _advance(self) -> bool:
        """Read and decode one packet, or break off waiting for it; False at the end."""
        container, stream = self._opened()
        if self._packets is None:
            self._packets = container.demux(stream)
        try:
            packet = next(self._packets, None)
        except (av.ExitError, TimeoutError):
            self._packets = None
            return True
        except (av.FFmpegError, OSError):
            return False
        # What a live stream leaves in the decoder at its end may be half a frame.
        if packet is None or (packet.size == 0 and not self._declared):
            return False
        # Where two parts of HLS join, the last packet of the first one is only called damaged.
        if packet.is_corrupt and container.format.name != "hls":
            self._break("a packet is damaged")
            return True
        try:
            self._decoded.extend(packet.decode())
        except EOFError:
            return False
        except av.FFmpegError:
            self._break("a frame cannot be decoded")
        return True

    def _is_whole(self, frame: VideoFrame) -> bool:
        if frame.is_corrupt:
            self._break("a frame is damaged")
        elif self._broken and frame.key_frame:
            self._broken = False
        return not self._broken

    def _break(self, what: str) -> None:
        self._broken = True
        self._damage.add(what)

    def _told(self, what: str) -> str:
        damaged = f", {self._damage.count} damaged ones were skipped" if self._damage.count else ""
        return f"{what} after {self._delivered} frames{damaged}"

    def _opened(self) -> tuple[InputContainer, VideoStream]:
        if self._container is None or self._stream is None:
            raise SourceError(f"{self._where}: not open")
        return self._container, self._stream
