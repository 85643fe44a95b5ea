"""What the command line says on standard error: lines for people, or JSON for machines."""

from __future__ import annotations

import json
import logging
import sys
import time
from contextlib import suppress
from typing import Literal

from pipeline.locate import printable
from pipeline.logs import JsonFormatter, KeyValueFormatter, RateLimit

__all__ = ["Terminal"]


class _Handler(logging.Handler):
    """Log records in place of the status line, as the command line's other messages."""

    def emit(self, record: logging.LogRecord) -> None:
        _write(self.format(record))


class Terminal:
    """Standard error for one run of the command line."""

    def __init__(self, form: Literal["text", "json"] = "text") -> None:
        self.json = form == "json"

    def say(self, text: str) -> None:
        """One or more lines, in place of a status line that stands there."""
        if not self.json:
            _write(printable(text))
            return
        level = "error" if text.startswith("error: ") else "info"
        self.record(level, text.removeprefix("error: "))

    def record(self, level: str, message: str, **fields: object) -> None:
        """One JSON object, as those of the log."""
        whole = {
            "time": round(time.time(), 3),
            "level": level,
            "logger": "pipeline.cli",
            "message": printable(message),
            **fields,
        }
        _write(json.dumps(whole))

    def show_log(self, *, quiet: bool, debug: bool) -> None:
        """Let the package's log come here: warnings, and what a service does; or more, or less."""
        log = logging.getLogger("pipeline")
        for handler in [handler for handler in log.handlers if isinstance(handler, _Handler)]:
            log.removeHandler(handler)
        handler = _Handler()
        handler.setFormatter(JsonFormatter() if self.json else KeyValueFormatter())
        handler.addFilter(RateLimit())
        log.addHandler(handler)
        log.propagate = False
        usual = logging.ERROR if quiet else logging.WARNING
        log.setLevel(logging.DEBUG if debug else usual)
        # That a camera is back is no warning, but wanted by whoever read that it was lost; and
        # what was chosen by whoever left the choice to a measurement.
        for name in ("pipeline.service", "pipeline.tuning"):
            wanted = logging.getLogger(name)
            wanted.setLevel(logging.NOTSET if quiet or debug else logging.INFO)


def _write(line: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # stderr may be closed
        start = "\r\x1b[K" if sys.stderr.isatty() else ""
        sys.stderr.write(f"{start}{line}\n")
        sys.stderr.flush()
