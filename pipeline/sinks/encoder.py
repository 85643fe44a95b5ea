"""A video file being encoded, which stays readable when the process is killed."""

from __future__ import annotations

import contextlib
import math
import os
from fractions import Fraction

import av
from av.container import OutputContainer
from av.video.stream import VideoStream

from pipeline.errors import SinkError
from pipeline.memory.frame import Image

__all__ = ["LEAST_FPS", "MOST_FPS", "Encoder", "default_codec"]


def _is_known(encoder: str) -> bool:
    try:
        av.codec.Codec(encoder, "w")
    except (ValueError, av.FFmpegError):
        return False
    return True


_H264 = next(filter(_is_known, ("libx264", "libopenh264")), "")
# Encoders of FFmpeg by the four-character codes in use; any other name is looked up as it is.
_ENCODERS = {
    "mp4v": "mpeg4",
    "xvid": "mpeg4",
    "mjpg": "mjpeg",
    "avc1": _H264,
    "h264": _H264,
    "hev1": "libx265",
    "hevc": "libx265",
    "vp80": "libvpx",
    "vp90": "libvpx-vp9",
    "av01": "libsvtav1",
}
_BITS_PER_PIXEL = {"mjpeg": 2.0}
# Quick, and each frame leaves the encoder at once: those held back are lost in a kill.
_QUICK = {
    "libx264": {"preset": "superfast", "tune": "zerolatency"},
    "libx265": {"preset": "superfast", "tune": "zerolatency", "x265-params": "log-level=error"},
    "libvpx": {"deadline": "realtime", "cpu-used": "8", "lag-in-frames": "0"},
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8", "lag-in-frames": "0"},
    "libsvtav1": {"preset": "11", "svtav1-params": "pred-struct=1:rc=2"},
}
# Whole in pieces while it is written, and an ordinary file once it is closed.
_MP4 = {"movflags": "hybrid_fragmented+frag_keyframe"}
_MATROSKA = {"cluster_time_limit": "1000"}
_OPTIONS = {".mp4": _MP4, ".mov": _MP4, ".m4v": _MP4, ".mkv": _MATROSKA, ".webm": _MATROSKA}
# FFmpeg writes any codec into a transport stream, but nothing plays the others.
_TS_ENCODERS = {_H264, "libx265", "mpeg4", "mpeg2video"}
# What containers and codecs count in has an end.
_LEAST_BITS = 20_000
LEAST_FPS, MOST_FPS = 0.1, 1000.0


def default_codec(path: str) -> str:
    """Codec that suits the file's ending: VP8 for WebM, else H.264, or MPEG-4 without it.

    Browsers play H.264 and VP8. AVI is not for browsers and gets MPEG-4.
    """
    ending = os.path.splitext(path)[1].lower()
    if ending == ".webm":
        return "VP80"
    if _H264 and ending != ".avi":
        return "avc1"
    return "mp4v"


class Encoder:
    """One file of one size and rate; a key frame about each second, after which it is flushed.

    ``codec`` is a four-character code or the name of an FFmpeg encoder. Rates beyond 0.1 to
    1000 are written as the nearest of these. A file closed before its first frame stays empty.
    SinkError when there is no such encoder, or the file's ending stands for no container that
    takes it.
    """

    def __init__(self, path: str, codec: str, width: int, height: int, fps: float) -> None:
        self._where = f"video: {path}"
        self._size = width & ~1, height & ~1
        self._next = 0
        ending = os.path.splitext(path)[1]
        name = _ENCODERS.get(codec.lower(), codec.lower())
        self._container: OutputContainer | None = None
        os.environ.setdefault("SVT_LOG", "1")  # the AV1 encoder prints its settings otherwise
        if min(self._size) == 0:
            raise SinkError(f"{self._where}: frames of {width}x{height} are too small for a video")
        try:
            if ending.lower() == ".ts" and name not in _TS_ENCODERS:
                raise ValueError(f"{name} does not fit a transport stream")
            options = {"flush_packets": "1", **_OPTIONS.get(ending.lower(), {})}
            self._container = av.open(f"file:{path}", "w", options=options)
            self._stream = self._add_stream(self._container, name, fps)
            # The header comes with the first packet: FFmpeg 8.0 crashes where an MP4 has only that.
            self._stream.codec_context.open()
        except (av.FFmpegError, ValueError) as error:
            self._abandon()
            raise SinkError(
                f"{self._where}: no video of {width}x{height} at {fps:g} fps can be written; "
                f"codec {codec!r} is missing here or does not fit {ending}"
            ) from error

    def _add_stream(self, container: OutputContainer, name: str, fps: float) -> VideoStream:
        bounded = min(max(fps, LEAST_FPS), MOST_FPS) if math.isfinite(fps) else MOST_FPS
        # MPEG-4 counts a second in at most 65535 parts.
        rate = Fraction(bounded).limit_denominator(min(1001, int(65535 / bounded)))
        stream = container.add_stream(name, rate=rate, options=_QUICK.get(name, {}))
        if not isinstance(stream, VideoStream):
            raise ValueError(f"{name} encodes no video")
        width, height = self._size
        context = stream.codec_context
        context.width, context.height = width, height
        context.pix_fmt = "yuvj420p" if name == "mjpeg" else "yuv420p"
        context.gop_size = max(1, round(bounded))
        bits = width * height * bounded * _BITS_PER_PIXEL.get(name, 0.25)
        context.bit_rate = max(_LEAST_BITS, round(bits))
        context.thread_count = 1  # the engine needs the others
        context.time_base = 1 / rate
        return stream

    @property
    def frames(self) -> int:
        """Number of frames written so far."""
        return self._next

    def write(self, image: Image) -> None:
        """Encode the next frame, uint8 BGR (height, width, 3). SinkError when it cannot."""
        width, height = self._size
        frame = av.VideoFrame.from_ndarray(image[:height, :width], format="bgr24")
        frame.pts = self._next
        frame.time_base = self._stream.codec_context.time_base
        self._mux(frame)
        self._next += 1

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
