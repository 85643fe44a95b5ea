"""A video file being encoded, which stays readable when the process is killed."""

from __future__ import annotations

import contextlib
import os
from fractions import Fraction

import av
from av.container import OutputContainer
from av.video.stream import VideoStream

from pipeline.errors import SinkError
from pipeline.frame import Image

__all__ = ["Encoder"]

# Encoders of FFmpeg by the four-character codes in use; any other name is looked up as it is.
_ENCODERS = {
    "mp4v": "mpeg4",
    "xvid": "mpeg4",
    "mjpg": "mjpeg",
    "avc1": "libx264",
    "h264": "libx264",
    "hev1": "libx265",
    "hevc": "libx265",
    "vp80": "libvpx",
    "vp90": "libvpx-vp9",
    "av01": "libsvtav1",
}
_BITS_PER_PIXEL = {"mjpeg": 2.0}
# Whole in pieces while it is written, and an ordinary file once it is closed.
_MP4 = {"movflags": "hybrid_fragmented+frag_keyframe"}
_MATROSKA = {"cluster_time_limit": "1000"}
_OPTIONS = {".mp4": _MP4, ".mov": _MP4, ".m4v": _MP4, ".mkv": _MATROSKA, ".webm": _MATROSKA}


class Encoder:
    """One file of one size and rate; a key frame about each second, after which it is flushed.

    ``codec`` is a four-character code or the name of an FFmpeg encoder. A file closed before its
    first frame stays empty. SinkError when there is no such encoder, or the file's ending stands
    for no container that takes it.
    """

    def __init__(self, path: str, codec: str, width: int, height: int, fps: float) -> None:
        self._where = f"video: {path}"
        self._size = width & ~1, height & ~1
        self._next = 0
        ending = os.path.splitext(path)[1]
        name = _ENCODERS.get(codec.lower(), codec.lower())
        self._container: OutputContainer | None = None
        try:
            options = {"flush_packets": "1", **_OPTIONS.get(ending.lower(), {})}
            self._container = av.open(f"file:{path}", "w", options=options)
            self._stream = self._add_stream(self._container, name, fps)
            # The header comes with the first packet: FFmpeg 8.0 crashes where an MP4 has only that.
            self._stream.codec_context.open()
        except (av.FFmpegError, ValueError) as error:
            self._abandon()
            raise SinkError(
                f"{self._where}: no video of {width}x{height} at {fps:g} fps can be written; "
                f"codec {codec!r} is missing here or does not fit "
                f"{ending or 'a file without an ending'}"
            ) from error

    def _add_stream(self, container: OutputContainer, name: str, fps: float) -> VideoStream:
        rate = Fraction(fps).limit_denominator(1001)
        stream = container.add_stream(name, rate=rate)
        if not isinstance(stream, VideoStream):
            raise ValueError(f"{name} encodes no video")
        width, height = self._size
        context = stream.codec_context
        context.width, context.height = width, height
        context.pix_fmt = "yuvj420p" if name == "mjpeg" else "yuv420p"
        context.gop_size = max(1, round(fps))
        context.bit_rate = round(width * height * fps * _BITS_PER_PIXEL.get(name, 0.25))
        context.thread_count = 1  # the engine needs the others
        context.time_base = 1 / rate
        return stream

    def write(self, picture: Image) -> None:
        """Encode the next frame, uint8 BGR (height, width, 3). SinkError when it cannot."""
        width, height = self._size
        frame = av.VideoFrame.from_ndarray(picture[:height, :width], format="bgr24")
        frame.pts = self._next
        frame.time_base = self._stream.codec_context.time_base
        self._next += 1
        self._mux(frame)

    def close(self) -> None:
        """Write what is left and finish the file. SinkError when it is not whole."""
        if self._container is None:
            return
        self._mux(None)
        try:
            self._container.close()
        except av.FFmpegError as error:
            raise self._failed(error) from error
        self._container = None

    def _mux(self, frame: av.VideoFrame | None) -> None:
        """Encode a frame, or with None what is left, into the file."""
        if self._container is None:
            raise SinkError(f"{self._where}: not open")
        try:
            for packet in self._stream.encode(frame):
                self._container.mux(packet)
        except av.FFmpegError as error:
            raise self._failed(error) from error

    def _failed(self, error: av.FFmpegError) -> SinkError:
        self._abandon()
        return SinkError(f"{self._where}: cannot be written: {error.strerror}")

    def _abandon(self) -> None:
        container, self._container = self._container, None
        if container is not None:
            with contextlib.suppress(av.FFmpegError):
                container.close()
