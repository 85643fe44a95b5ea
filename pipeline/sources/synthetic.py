"""A generator of frames whose every pixel follows from the frame's number."""

from __future__ import annotations

import threading
from urllib.parse import parse_qsl

import numpy as np
from pydantic import ValidationError

from pipeline.clock import Clock
from pipeline.errors import ConfigError, SourceError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.sources.pace import Pace
from pipeline.sources.settings import SourceSettings

__all__ = ["SCHEME", "SyntheticReader", "synthetic_frame", "synthetic_settings"]

SCHEME = "synthetic:"
_KEYS = ("width", "height", "fps", "frames")
_WIDTH, _HEIGHT = 640, 480


class _Pattern:
    """Gradients that drift and a white square that wanders."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        # 256 more than needed: any phase of the gradient is a slice, so drawing copies only.
        self._row = np.empty((width + 256, 3), np.uint8)
        self._row[:] = np.arange(width + 256, dtype=np.uint32)[:, None] * (1, 0, 3) % 256
        self._column = (np.arange(height + 256) % 256).astype(np.uint8)
        self._side = max(1, min(width, height) // 4)

    def draw(self, sequence: int, out: Image) -> None:
        across, down = sequence % 256, 2 * sequence % 256
        out[:] = self._row[across : across + self._width]
        out[:, :, 1] = self._column[down : down + self._height, None]
        x = 7 * sequence % (self._width - self._side + 1)
        y = 5 * sequence % (self._height - self._side + 1)
        out[y : y + self._side, x : x + self._side] = 255


def synthetic_frame(sequence: int, width: int, height: int) -> Image:
    """Frame number ``sequence`` of a synthetic source of this size, as a new array."""
    frame = np.empty((height, width, 3), np.uint8)
    _Pattern(width, height).draw(sequence, frame)
    return frame


_URI = ("uri",)


def synthetic_settings(settings: SourceSettings) -> SourceSettings:
    """The settings with what the URI's query says put in; ConfigError for a bad query."""
    query = str(settings.uri).removeprefix(SCHEME).removeprefix("//").removeprefix("?")
    values = settings.model_dump()
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        pairs = [(query, "")]
    for key, value in pairs:
        if key not in _KEYS:
            raise ConfigError(
                f"{SCHEME} knows {', '.join(_KEYS)}, as in "
                f'"{SCHEME}?width=640&height=480", not {key!r}',
                _URI,
            )
        if values[key] is not None:
            raise ConfigError(f"{key} is given twice", _URI)
        values[key] = value
    try:
        found = type(settings).model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        raise ConfigError(f"{name}={values[name]}: {problem['msg']}", _URI) from None
    width, height = found.width or _WIDTH, found.height or _HEIGHT
    if width * height > found.max_pixels:
        text = f"{width}x{height} is more than max_pixels ({found.max_pixels}) allows"
        raise ConfigError(text, _URI)
    return found


class SyntheticReader:
    """Generated frames, implementing ``Reader``; ``synthetic_frame`` makes the same ones.

    With ``fps`` they come at that pace, like a camera's, and are stamped with when each was
    due; without, as fast as they are read. The frame number counts grabs, so a dropped frame
    leaves a gap as it does with a camera.
    """

    def __init__(self, settings: SourceSettings, clock: Clock) -> None:
        settings = synthetic_settings(settings)
        self.live = settings.fps is not None
        self._clock = clock
        self._format = FrameFormat(
            settings.width or _WIDTH, settings.height or _HEIGHT, settings.fps, settings.frames
        )
        paced = self.live or settings.realtime
        self._pace = Pace(clock, settings.fps) if paced else None
        self._loop = settings.loop
        self._stop = threading.Event()
        self._pattern: _Pattern | None = None
        self._next = 0

    def open(self) -> FrameFormat:
        """Prepare the pattern."""
        self._pattern = _Pattern(self._format.width, self._format.height)
        self._next = 0
        return self._format._replace(frames=None) if self._loop else self._format

    def grab(self) -> int | None:
        """Go to the next number; None after the last."""
        frames = self._format.frames
        if self._stop.is_set() or (frames is not None and self._next >= frames and not self._loop):
            return None
        self._next += 1
        return self._clock.now() if self._pace is None else self._pace.wait(self._stop)

    def retrieve(self, buffer: Image) -> None:
        """Draw the frame into ``buffer``; nothing of frame size is allocated."""
        needed = (self._format.height, self._format.width, 3)
        if self._pattern is None or self._next == 0:
            raise SourceError(f"{SCHEME} nothing was grabbed")
        if buffer.shape != needed:
            raise SourceError(f"{SCHEME} the buffer is {buffer.shape}, needed {needed}")
        frames = self._format.frames
        number = self._next - 1
        self._pattern.draw(number % frames if frames else number, buffer)

    def interrupt(self) -> None:
        """Make a waiting ``grab`` return None soon."""
        self._stop.set()

    def close(self) -> None:
        """Free the pattern."""
        self._pattern = None
