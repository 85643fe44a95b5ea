"""From FFmpeg's decoded frames into frame buffers; shared by the readers that use PyAV."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.reformatter import ColorRange, VideoReformatter

from pipeline.errors import FormatChangedError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.memory.i420 import Matrix, planes_of
from pipeline.sources.orientation import UPRIGHT, Orientation, lay, orientation_of
from pipeline.sources.settings import MAX_PIXELS

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer
    from av.video.plane import VideoPlane

__all__ = [
    "Damage",
    "FrameWriter",
    "declared_format",
    "decode_alone",
    "format_of",
    "open_container",
    "strict_decoder",
]

_log = logging.getLogger(__name__)

_SAY_SECONDS = 10.0

# Smaller frames are converted at once: that takes less time than one call more for each plane.
LEAST_PIXELS = 480 * 360
_PLANAR = ("yuv420p", "yuvj420p", "nv12")
# By FFmpeg's numbers (AVColorSpace); an unknown one counts as BT.601, as with swscale.
_MATRICES: dict[int, Matrix] = {1: "709", 2: "601", 5: "601", 6: "601"}


# Titles and other texts need not be UTF-8. PyAV 19 always replaces what is not.
_LENIENT: dict[str, Any] = (
    {"metadata_errors": "replace"} if int(av.__version__.partition(".")[0]) < 19 else {}
)


def open_container(url: Any, **options: Any) -> InputContainer:
    """Open a file or a stream for reading, with the keywords of ``av.open``."""
    container: InputContainer = av.open(url, **options, **_LENIENT)
    return container


def strict_decoder(context: VideoCodecContext, max_pixels: int = MAX_PIXELS) -> None:
    """Set up a decoder, not yet open, that refuses damage and holds no frame back.

    By itself FFmpeg paints over what is missing. Its threads would each hold a frame back.
    """
    context.thread_type = "NONE"
    context.thread_count = 1
    context.options = {"err_detect": "explode", "max_pixels": str(max_pixels)}


def decode_alone(
    data: bytes, codec: str, max_pixels: int, *, strict: bool = True
) -> VideoFrame | None:
    """The one frame in ``data``; None where it cannot be decoded or, ``strict``, is damaged."""
    context = av.CodecContext.create(codec, "r")
    assert isinstance(context, VideoCodecContext)
    strict_decoder(context, max_pixels)
    if not strict:
        context.options = {"max_pixels": str(max_pixels)}
    try:
        frames = [*context.decode(av.Packet(data)), *context.decode(None)]
    except (av.FFmpegError, EOFError):
        return None
    whole = [frame for frame in frames if not (strict and frame.is_corrupt)]
    return whole[0] if whole else None


def format_of(
    frame: VideoFrame, *, planes: bool = True, orientation: Orientation | None = None
) -> FrameFormat:
    """Format of a decoded frame: planes if possible and wanted, else BGR."""
    size = (frame.width, frame.height)
    if (orientation or orientation_of(frame)).swapped:
        size = size[::-1]
    if not planes:
        return FrameFormat(*size)
    return _format(
        size,
        frame.format.name,
        frame.colorspace,
        frame.color_range,
    )


def declared_format(context: VideoCodecContext, *, planes: bool = True) -> FrameFormat | None:
    """Format of the frames as declared by the stream; None if that is not enough."""
    if not (context.width and context.height and context.pix_fmt):
        return None
    size = (context.width, context.height)
    if not planes:
        return FrameFormat(*size)
    return _format(size, context.pix_fmt, context.colorspace, context.color_range)


def _format(size: tuple[int, int], pixels: str, space: int, value_range: int) -> FrameFormat:
    """As planes where they are 4:2:0 of 8 bits and of a matrix that is known, else as BGR."""
    width, height = size
    matrix = _MATRICES.get(space)
    if pixels not in _PLANAR or matrix is None or width % 2 or height % 2:
        return FrameFormat(*size)
    if width * height < LEAST_PIXELS:
        return FrameFormat(*size)
    full_range = pixels == "yuvj420p" or value_range == ColorRange.JPEG
    return FrameFormat(*size, pixels="i420", matrix=matrix, full_range=full_range)


class FrameWriter:
    """Writes frames upright, as planes or as BGR, by the matrix and range that they declare.

    Planes are copied. For BGR swscale converts into memory of its own and from there it is
    copied: PyAV lets it write nowhere else. ``format`` is what the frame buffers are made for:
    set it to what ``open`` returned. ``upright``: no frame asks to be turned.
    """

    def __init__(self, where: str, *, planes: bool = True, upright: bool = False) -> None:
        self._where = where
        self.planes = planes
        self._upright = upright
        self._seen: object = None
        self._orientation = UPRIGHT
        self._reformatter = VideoReformatter()
        self.format: FrameFormat | None = None

    def write(self, frame: VideoFrame, buffer: Image) -> None:
        """Fill ``buffer``; FormatChangedError when the frame is of another format."""
        orientation = self._orientation_of(frame)
        found = format_of(frame, planes=self.planes, orientation=orientation)
        expected, self.format = self.format or found, found
        if buffer.shape != found.shape or not found.fits(expected):
            height, width, *_ = buffer.shape
            raise FormatChangedError(
                f"{self._where}: the frame is {_told(found)}, needed {_told(expected)} "
                f"in a buffer of {width}x{height}",
                found,
            )
        if found.pixels == "i420":
            _copy_planes(frame, buffer, orientation)
        else:
            self._convert(frame, buffer, orientation)

    def _orientation_of(self, frame: VideoFrame) -> Orientation:
        """Orientation of the frame, read again only if something else changed, too.

        PyAV ties a frame and its side data together, so that only the garbage collector frees
        a frame that was looked at.
        """
        seen = (frame.rotation, frame.width, frame.height)
        if not self._upright and seen != self._seen:
            self._seen, self._orientation = seen, orientation_of(frame)
        return self._orientation

    def _convert(self, frame: VideoFrame, buffer: Image, orientation: Orientation) -> None:
        converted = self._reformatter.reformat(frame, format="bgr24", threads=1)
        shape = (frame.height, frame.width, 3)
        lay(_view(converted.planes[0], shape), buffer, orientation)


def _told(form: FrameFormat) -> str:
    size = f"{form.width}x{form.height} {form.pixels}"
    if form.pixels == "bgr":
        return size
    return f"{size} BT.{form.matrix} {'full' if form.full_range else 'limited'} range"


def _copy_planes(frame: VideoFrame, buffer: Image, orientation: Orientation) -> None:
    planes = frame.planes
    y, u, v = planes_of(buffer)
    whole = (frame.height, frame.width)
    half = (frame.height // 2, frame.width // 2)
    lay(_view(planes[0], whole), y, orientation)
    if len(planes) == 2:  # nv12
        pairs = _view(planes[1], (*half, 2))
        chroma = pairs[..., 0], pairs[..., 1]
    else:
        chroma = _view(planes[1], half), _view(planes[2], half)
    for source, target in zip(chroma, (u, v), strict=True):
        lay(source, target, orientation)


def _view(plane: VideoPlane, shape: tuple[int, ...]) -> Image:
    """Values of a plane, one byte each, without the padding of its rows."""
    strides = (plane.line_size, 1) if len(shape) == 2 else (plane.line_size, shape[2], 1)
    return np.ndarray(shape, np.uint8, memoryview(plane), 0, strides)


class Damage:
    """Counts frames that could not be used, and logs that at intervals."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._said = -_SAY_SECONDS
        self.count = 0

    def add(self, what: str) -> None:
        """Count one more, with its damage."""
        self.count += 1
        if time.monotonic() - self._said >= _SAY_SECONDS:
            self._said = time.monotonic()
            _log.warning("%s: %s; skipped (%d so far)", self._where, what, self.count)
