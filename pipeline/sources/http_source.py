"""Reader of an http(s) URL, chosen by the server's answer."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pipeline.clock import Clock
from pipeline.contracts import Reader
from pipeline.errors import SourceError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.redact import redact_uri
from pipeline.sources.http_stream import HttpStream
from pipeline.sources.settings import SourceSettings

__all__ = ["HttpReader"]


class HttpReader:
    """The reader that fits what the server sends, chosen when opened; implements ``Reader``.

    ``frames`` makes the one for multipart/x-mixed-replace from the answer that has begun,
    ``other`` the one for everything else, which asks again. What has an end is played like a
    file: then ``live`` is false once it is open.
    """

    live = True

    def __init__(
        self,
        settings: SourceSettings,
        clock: Clock,
        frames: Callable[[SourceSettings, Clock, HttpStream], Reader],
        other: Callable[[SourceSettings, Clock], Reader],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._where = redact_uri(str(settings.uri))
        self._frames = frames
        self._other = other
        self._lock = threading.Lock()
        self._stopped = False
        self._web = HttpStream(str(settings.uri), self._where)
        self._reader: Reader | None = None

    def open(self) -> FrameFormat:
        """Ask what there is and open it. SourceError when nothing answers or it is no video."""
        self._web.open(self._settings.open_timeout_s)
        if self._web.content_type.lower().startswith("multipart/"):
            reader = self._frames(self._settings, self._clock, self._web)
        else:
            self._web.close()
            reader = self._other(self._settings, self._clock)
        with self._lock:
            self._reader = reader
            if self._stopped:
                reader.interrupt()
        try:
            found = reader.open()
        except SourceError:
            self._reader = None
            raise
        self.live = reader.live
        return found

    def grab(self) -> int | None:
        """Wait for the next frame, as the reader does."""
        return self._opened().grab()

    def retrieve(self, buffer: Image) -> None:
        """Write the grabbed frame into ``buffer``."""
        self._opened().retrieve(buffer)

    @property
    def damaged(self) -> int:
        """Frames that the reader calls damaged."""
        return int(getattr(self._reader, "damaged", 0))

    def interrupt(self) -> None:
        """Make a waiting ``open`` or ``grab`` end, as soon as the reader can."""
        with self._lock:
            self._stopped = True
            reader = self._reader
        # The reader first: else it would take the broken connection for the stream's end.
        if reader is not None:
            reader.interrupt()
        self._web.interrupt()

    def close(self) -> None:
        """Disconnect."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _opened(self) -> Reader:
        if self._reader is None:
            raise SourceError(f"{self._where}: not open")
        return self._reader
