"""JSON Lines: one object a result, one a line."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import math
import os
import stat
import sys
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.contracts import StreamInfo
from pipeline.errors import ReaderLeftError, SinkError
from pipeline.memory.results import Detections, RawOutput, Result
from pipeline.paths import is_pipe
from pipeline.sinks import screen
from pipeline.sinks.settings import STANDARD_OUTPUT, JsonlSettings
from pipeline.sinks.target import Removal, make_parent, reason_of

__all__ = ["JsonlSink", "record"]

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1


def record(result: Result, digest: bool = False) -> dict[str, Any]:
    """Content of a line for a result, ready for JSON.

    Keys: ``camera``, ``sequence``, ``stamps`` (ns of the pipeline's clock), ``latency_ms``,
    ``detections`` (``box`` [x1, y1, x2, y2] and ``landmarks`` [[x, y], ...] in frame pixels,
    ``score``, ``label``) and, where the result keeps its outputs, ``outputs`` (``name``,
    ``shape``, ``dtype``, ``min``, ``max``, ``mean``; with ``digest`` also ``sha256`` of the values
    in C order). Numbers that are not finite are null.
    """
    line: dict[str, Any] = {
        "camera": result.camera,
        "sequence": result.sequence,
        "stamps": result.stamps._asdict(),
        "latency_ms": round(result.stamps.latency_ns / 1e6, 3),
        "detections": _detections(result.detections),
    }
    if outputs := result.outputs:
        line["outputs"] = [_output(output, digest) for output in outputs]
    return line


class JsonlSink:
    """Writes ``record`` of each result as a line, implementing ``Sink``.

    The folders above the file are made; ``begin`` empties an older file. Each line is one write,
    so a killed process leaves whole lines; when a write fails, the part of a line is taken off.
    The path ``-`` is standard output, which is not closed.
    """

    def __init__(self, settings: JsonlSettings) -> None:
        self._path = settings.path
        self._digest = settings.digest
        self._opened = self._on_screen = False
        self._file = -1
        self._removal = Removal(-1)
        self._interrupted = threading.Event()

    def open(self, stream: StreamInfo) -> None:
        """Make the file. SinkError when it is a folder or cannot be written.

        A named pipe is opened with the first result, as that waits for a reader.
        """
        if self._path == STANDARD_OUTPUT:
            self._file = _standard_output()
            self._on_screen = screen.is_screen(sys.stdout)
            self._opened = True
            return
        make_parent("jsonl", self._path)
        self._opened = True
        if is_pipe(self._path):
            _log.warning("jsonl: %s: waiting until something reads this pipe", self._path)
            return
        self._start()

    def begin(self) -> None:
        """Empty an older file; SinkError when that is not possible."""
        if self._file < 0 or self._path == STANDARD_OUTPUT:
            return
        try:
            if stat.S_ISREG(os.fstat(self._file).st_mode):
                os.ftruncate(self._file, 0)
        except OSError as error:
            raise self._failed(error) from error

    def _start(self, how: int = 0) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how
        try:
            self._file = os.open(self._path, flags, 0o666)
        except OSError as error:
            raise self._failed(error) from error
        self._removal = Removal(self._file)

    def _await_reader(self) -> None:
        while self._file < 0:
            try:
                # Not blocking, or it could not be interrupted.
                self._file = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise self._failed(error) from error
                if self._interrupted.wait(_LOOK_SECONDS):
                    raise SinkError(f"jsonl: {self._path}: nobody reads this pipe") from None
        os.set_blocking(self._file, True)
        self._removal = Removal(self._file)

    def write(self, result: Result) -> None:
        """Append one line; SinkError when the disk is full, or the reader or the file has gone.

        After a file was removed the next result begins a new one.
        """
        if not self._opened:
            raise SinkError(f"jsonl: {self._path}: not open")
        if self._file < 0:
            if is_pipe(self._path):
                self._await_reader()
            else:
                make_parent("jsonl", self._path)
                self._start(os.O_TRUNC)
        if self._path != STANDARD_OUTPUT and self._removal.seen():
            os.close(self._file)
            self._file = -1
            raise SinkError(f"jsonl: {self._path}: was removed")
        told = record(result, self._digest)
        text = json.dumps(told, allow_nan=False, separators=(",", ":"))
        line = (screen.line(text) if self._on_screen else f"{text}\n").encode()
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._drop_part(len(line) - len(rest))
            raise self._failed(error) from error

    def interrupt(self) -> None:
        """Wait no longer for who reads a pipe. From any thread."""
        self._interrupted.set()

    def close(self) -> None:
        """Close the file; SinkError when the system could not keep what was written."""
        file, self._file, self._opened = self._file, -1, False
        if file >= 0:
            try:
                os.close(file)
            except OSError as error:
                raise self._failed(error) from error

    def _drop_part(self, size: int) -> None:
        """Take the last ``size`` bytes off a regular file."""
        with contextlib.suppress(OSError):
            if size and stat.S_ISREG(os.fstat(self._file).st_mode):
                good = os.lseek(self._file, -size, os.SEEK_CUR)
                os.ftruncate(self._file, good)

    def _failed(self, error: OSError) -> SinkError:
        left = self._path == STANDARD_OUTPUT and isinstance(error, BrokenPipeError)
        kind = ReaderLeftError if left else SinkError
        return kind(f"jsonl: {self._path}: cannot be written: {reason_of(error)}")


def _standard_output() -> int:
    """A descriptor of our own; SinkError where standard output is closed or no file."""
    try:
        sys.stdout.flush()
        return os.dup(sys.stdout.fileno())
    except (AttributeError, OSError, ValueError) as error:
        raise SinkError(f"jsonl: {STANDARD_OUTPUT}: standard output is not open") from error


def _finite(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


def _rows(values: npt.NDArray[np.float32]) -> Any:
    """Nested lists of numbers of two decimals."""
    listed = values.tolist()

    def each(item: Any) -> Any:
        return [each(i) for i in item] if isinstance(item, list) else _finite(item, 2)

    return each(listed)


def _detections(detections: Detections) -> list[dict[str, Any]]:
    return [
        {
            "box": _rows(detection.box),
            "score": _finite(detection.score, 4),
            "label": detection.label,
            "landmarks": _rows(detection.landmarks),
        }
        for detection in detections
    ]


def _output(output: RawOutput, digest: bool) -> dict[str, Any]:
    array = output.array
    told: dict[str, Any] = {
        "name": output.name,
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "min": None,
        "max": None,
        "mean": None,
    }
    if array.size:
        with np.errstate(all="ignore"):
            told["min"] = _scalar(array.min())
            told["max"] = _scalar(array.max())
            told["mean"] = _scalar(array.mean(dtype=np.float64))
    if digest:
        told["sha256"] = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
    return told


def _scalar(value: np.generic) -> float | int | None:
    number = value.item()
    if isinstance(number, int):  # bool too
        return int(number)
    return float(number) if math.isfinite(number) else None
