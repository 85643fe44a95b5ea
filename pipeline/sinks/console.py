"""One line a result on a text stream."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TextIO

from pipeline.contracts import StreamInfo
from pipeline.errors import ReaderLeftError, SinkError
from pipeline.memory.results import Detection, RawOutput, Result
from pipeline.sinks import screen
from pipeline.sinks.settings import ConsoleSettings

__all__ = ["ConsoleSink"]


class ConsoleSink:
    """Writes and flushes a line for each result, implementing ``Sink``.

    ``stream`` is standard output, as it is when the sink opens, unless given; it is not
    closed. A line has the camera, the sequence number, the age of the result and what was
    detected, or the outputs where they are kept.
    """

    def __init__(self, settings: ConsoleSettings, stream: TextIO | None = None) -> None:
        self._given = stream
        self._stream = stream

    def open(self, stream: StreamInfo) -> None:
        """Take standard output; SinkError when it is closed."""
        self._stream = self._given if self._given is not None else sys.stdout
        if self._stream is None or self._stream.closed:
            raise SinkError("console: standard output is closed")

    def begin(self) -> None:
        """Do nothing: what was printed before stays."""

    def write(self, result: Result) -> None:
        """Print one line; SinkError when the reader of it has gone."""
        if self._stream is None:
            raise SinkError("console: not open")
        # Names come from elsewhere and must not break the line or steer the terminal.
        line = " ".join(_parts(result))
        line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
        try:
            encoding = self._stream.encoding or "utf-8"
            line = line.encode(encoding, "replace").decode(encoding)
            shown = screen.line(line) if screen.is_screen(self._stream) else f"{line}\n"
            self._stream.write(shown)
            self._stream.flush()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            kind = ReaderLeftError if isinstance(error, BrokenPipeError) else SinkError
            raise kind(f"console: cannot write: {reason}") from error

    def interrupt(self) -> None:
        """Do nothing: a stuck reader of standard output cannot be interrupted."""

    def close(self) -> None:
        """Let go of the stream."""
        self._stream = None


def _parts(result: Result) -> Iterator[str]:
    yield f"{result.camera} {result.sequence} {result.stamps.latency_ns / 1e6:.1f} ms"
    outputs = result.outputs
    if outputs and not len(result.detections):
        yield "; ".join(_output(output) for output in outputs)
        return
    yield f"{len(result.detections)} detections"
    if len(result.detections):
        yield "; ".join(_detection(detection) for detection in result.detections)


def _detection(detection: Detection) -> str:
    corners = " ".join(f"{value:.0f}" for value in detection.box.tolist())
    return f"{detection.label} {detection.score:.2f} [{corners}]"


def _output(output: RawOutput) -> str:
    shape = "x".join(str(size) for size in output.array.shape)
    return f"{output.name} {output.array.dtype} {shape}"
