"""Logs for people and for machines: key=value or JSON lines, limited, without credentials."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable

from pipeline.redact import printable

__all__ = ["JsonFormatter", "KeyValueFormatter", "RateLimit"]

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {
    "message",
    "asctime",
    "taskName",
}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """The ``extra`` of a record."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class KeyValueFormatter(logging.Formatter):
    """``warning: text camera=door state=lost``, followed by ``tracebacks`` if wanted."""

    def __init__(self, *, tracebacks: bool = False) -> None:
        super().__init__()
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """One line, secrets hidden."""
        pairs = "".join(f" {key}={_quoted(value)}" for key, value in _fields(record).items())
        line = f"{record.levelname.lower()}: {record.getMessage()}{pairs}"
        if self._tracebacks and record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return printable(line)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (Unix seconds), level, logger, message and the extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, secrets hidden."""
        whole = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        for key, value in _fields(record).items():
            whole.setdefault(key, printable(value) if isinstance(value, str) else value)
        if record.exc_info:
            whole["traceback"] = printable(self.formatException(record.exc_info))
        return json.dumps(whole, default=str)


_MOST_KINDS = 256


class RateLimit(logging.Filter):
    """At most ``burst`` records of one kind in ``seconds``.

    A kind is the logger, the level, the text before its values, and the source that it is
    about; the 256 latest are known. The next record that passes says how many were left out.
    """

    def __init__(
        self, burst: int = 5, seconds: float = 10.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._burst = burst
        self._seconds = seconds
        self._now = now
        self._kinds: dict[tuple[str, int, str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """True if this record is to be shown."""
        source = str(getattr(record, "source", ""))
        kind = (record.name, record.levelno, str(record.msg), source)
        began, seen = self._kinds.pop(kind, (self._now(), 0))
        if self._now() - began >= self._seconds:
            if seen > self._burst:
                record.left_out = seen - self._burst
            began, seen = self._now(), 0
        self._kinds[kind] = (began, seen + 1)  # the last one now
        if len(self._kinds) > _MOST_KINDS:
            self._kinds.pop(next(iter(self._kinds)), None)
        return seen < self._burst


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(c in text for c in ' "=') else text
