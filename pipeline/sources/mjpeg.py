"""JPEG frames over HTTP (multipart/x-mixed-replace), as most network cameras can send."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import av

from pipeline.clock import Clock
from pipeline.errors import SourceError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.redact import redact_uri
from pipeline.sources.http_stream import HttpStream
from pipeline.sources.jpeg import JpegFinder
from pipeline.sources.pyav_frames import Damage, FrameWriter, format_of, strict_decoder
from pipeline.sources.settings import SourceSettings

if TYPE_CHECKING:
    from av import VideoCodecContext, VideoFrame

__all__ = ["MjpegReader"]


class MjpegReader:
    """Frames of one stream, stamped when their last byte arrived; implements ``Reader``.

    The end of the stream is a SourceError, and so is a frame that takes longer than the read
    timeout. Cut and damaged frames are skipped. ``interrupt`` is heard at once.
    """

    live = True

    def __init__(
        self, settings: SourceSettings, clock: Clock, web: HttpStream | None = None
    ) -> None:
        self._where = redact_uri(str(settings.uri))
        self._clock = clock
        self._open_seconds = settings.open_timeout_s
        self._read_seconds = settings.read_timeout_s
        self._asked = web is not None  # the answer's head has been read
        self._web = web or HttpStream(str(settings.uri), self._where)
        self._max_pixels = settings.max_pixels
        self._stop = threading.Event()
        self._finder = JpegFinder(self._where, max_pixels=settings.max_pixels)
        self._damage = Damage(self._where)
        self._writer = FrameWriter(self._where, planes=settings.pixels == "auto")
        self._decoder: VideoCodecContext | None = None
        self._first: tuple[int, bytes] | None = None
        self._image: bytes | None = None

    def open(self) -> FrameFormat:
        """Connect and wait for the first frame, which shows the size."""
        deadline = time.monotonic() + self._open_seconds
        try:
            if not self._asked:
                self._web.open(self._open_seconds)
            self._decoder = av.CodecContext.create("mjpeg", "r")
            strict_decoder(self._decoder, self._max_pixels)
            while True:
                image = self._next(deadline)
                if image is None:
                    raise SourceError(f"{self._where}: stopped before the first frame")
                stamp = self._clock.now()
                frame = self._decode(image)
                if frame is not None:
                    self._first = stamp, image
                    self._writer.format = format_of(frame, planes=self._writer.planes)
                    return self._writer.format
        except SourceError:
            self.close()
            raise

    def grab(self) -> int | None:
        """Wait for the next whole frame; SourceError when the stream stopped."""
        if self._decoder is None:
            raise SourceError(f"{self._where}: not open")
        if self._stop.is_set():
            return None
        if self._first is not None:
            (stamp, self._image), self._first = self._first, None
            return stamp
        self._image = self._next(time.monotonic() + self._read_seconds)
        return None if self._image is None else self._clock.now()

    def retrieve(self, buffer: Image) -> None:
        """Decode the frame into ``buffer``; for one that is damaged the next one is waited for.

        FormatChangedError when it is of another format.
        """
        deadline = time.monotonic() + self._read_seconds
        while self._image is not None:
            frame = self._decode(self._image)
            if frame is not None:
                self._writer.write(frame, buffer)
                return
            self._image = self._next(deadline)
        raise SourceError(f"{self._where}: nothing was grabbed")

    @property
    def damaged(self) -> int:
        """Frames that were skipped."""
        return self._damage.count

    def interrupt(self) -> None:
        """Make a waiting ``open`` or ``grab`` end at once."""
        self._stop.set()
        self._web.interrupt()

    def close(self) -> None:
        """Disconnect."""
        self._web.close()
        self._decoder = None
        self._first = self._image = None

    def _next(self, deadline: float) -> bytes | None:
        """The next whole frame; None once interrupted."""
        while not self._stop.is_set():
            spoilt = self._finder.spoilt
            image = self._finder.next()
            if self._finder.spoilt != spoilt:
                self._damage.add("a frame is cut or spoilt")
            if image is not None:
                return image
            if time.monotonic() > deadline:
                raise SourceError(f"{self._where}: no whole frame came in time")
            data = self._web.read(deadline)
            if not data and not self._stop.is_set():
                raise SourceError(f"{self._where}: the stream ended")
            self._finder.feed(data)
        return None

    def _decode(self, image: bytes) -> VideoFrame | None:
        if self._decoder is None:
            raise SourceError(f"{self._where}: not open")
        try:
            frames = self._decoder.decode(av.Packet(image))
        except av.FFmpegError:
            frames = []
        if len(frames) == 1 and not frames[0].is_corrupt:
            return frames[0]
        self._damage.add("a frame is damaged")
        return None
