"""Standard error of the command line: lines for people, or JSON for machines."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from pipeline.redact import printable
from pipeline.service.logs import JsonFormatter, KeyValueFormatter, RateLimit
from pipeline.sinks import screen

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = ["Stderr", "Terminal", "log_stray_errors", "stderr"]

_log = logging.getLogger(__name__)
_MOST_WAITING = 256
_PATIENCE_S = 1.0


class Stderr:
    """Standard error, written by a thread, so that the event loop never waits for a reader.

    If nobody reads, 256 pieces wait; later ones are left out, and their number is written
    once there is room. Outside of an event loop ``write`` waits, for a second at most. The
    thread lives only while there is something to write.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[str] = deque()
        self._left_out = 0
        self._working = False
        self._stuck = False
        self.json = False

    def isatty(self) -> bool:
        """True on a terminal that can erase a line."""
        return screen.is_screen(sys.stderr)

    def write(self, text: str) -> None:
        """Write soon, or leave it out."""
        if sys.is_finalizing():  # no thread can start any more
            with suppress(OSError, ValueError, AttributeError):
                _write_now(text)
            return
        with self._changed:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append(text)
            else:
                self._left_out += 1
            if not self._working:
                self._working = True
                threading.Thread(target=self._work, name="stderr", daemon=True).start()
        if threading.current_thread() is threading.main_thread() and not _in_loop():
            self.wait()

    def flush(self) -> None:
        """Do nothing: whatever is written is flushed."""

    def wait(self) -> None:
        """Wait for a second at most until all is written, even in an event loop."""
        with self._changed:
            patience = 0 if self._stuck else _PATIENCE_S
            self._stuck = not self._changed.wait_for(lambda: not self._working, patience)

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._working = self._stuck = False
                    self._changed.notify_all()
                    return
                text = self._waiting.popleft()
                if self._left_out and not self._waiting:
                    told = f"{self._left_out} lines were left out, as nobody read them"
                    line = _record("warning", told) if self.json else f"warning: {told}"
                    self._waiting.append(f"{line}\n")
                    self._left_out = 0
            with suppress(OSError, ValueError, AttributeError):
                _write_now(text)


class _Handler(logging.Handler):
    """Log records in place of the status line, as the command line's other messages."""

    def emit(self, record: logging.LogRecord) -> None:
        stderr.write(_line(self.format(record)))


class Terminal:
    """Standard error for one run of the command line."""

    def __init__(self, form: Literal["text", "json"] = "text") -> None:
        self.json = stderr.json = form == "json"

    def report(self, text: str) -> None:
        """One or more lines, in place of a status line that stands there."""
        if self.json:
            self.record("info", text)
        else:
            stderr.write(_line(printable(text)))

    def fail(self, text: str) -> None:
        """Print an error, in one or more lines."""
        if self.json:
            self.record("error", text)
        else:
            stderr.write(_line(printable(f"error: {text}")))

    def record(self, level: str, message: str, **fields: object) -> None:
        """One JSON object, as those of the log."""
        stderr.write(_line(_record(level, message, **fields)))

    def show_log(self, *, quiet: bool, debug: bool) -> None:
        """Let the package's log come here: warnings, and what a service does; or more, or less."""
        handler = _Handler()
        handler.setFormatter(JsonFormatter() if self.json else KeyValueFormatter(tracebacks=debug))
        handler.addFilter(RateLimit())
        log = logging.getLogger("pipeline")
        logging.captureWarnings(True)
        for shown in (log, logging.getLogger("asyncio"), logging.getLogger("py.warnings")):
            shown.handlers = [other for other in shown.handlers if not isinstance(other, _Handler)]
            shown.addHandler(handler)
            shown.propagate = False
        usual = logging.ERROR if quiet else logging.WARNING
        log.setLevel(logging.DEBUG if debug else usual)
        # That a camera is back is no warning, but wanted by whoever read that it was lost; and
        # what was chosen by whoever left the choice to a measurement.
        for name in (
            "pipeline.flow.events",
            "pipeline.service.service",
            "pipeline.machine.autotune",
        ):
            wanted = logging.getLogger(name)
            wanted.setLevel(logging.NOTSET if quiet or debug else logging.INFO)


stderr = Stderr()


def log_stray_errors() -> None:
    """Log the errors of threads and destructors, of which Python would print a traceback."""
    threading.excepthook = _thread_failed
    sys.unraisablehook = _destructor_failed


def _thread_failed(args: threading.ExceptHookArgs) -> None:
    # SystemExit ends a thread as return does.
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        name = args.thread.name if args.thread else "unknown"
        _log_stray(f"thread {name}", args.exc_value)


def _destructor_failed(args: UnraisableHookArgs) -> None:
    if args.exc_value is not None:
        _log_stray(args.err_msg or f"{args.object!r}", args.exc_value)


def _log_stray(place: str, error: BaseException) -> None:
    _log.error("unexpected %s in %s: %s", type(error).__name__, place, error, exc_info=error)


def _record(level: str, message: str, **fields: object) -> str:
    whole = {
        "time": round(time.time(), 3),
        "level": level,
        "logger": "pipeline.cli",
        "message": printable(message),
        **fields,
    }
    return json.dumps(whole)


def _line(text: str) -> str:
    return screen.line(text) if stderr.isatty() else f"{text}\n"


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _write_now(text: str) -> None:
    try:
        number = sys.stderr.fileno()
    except OSError:  # no file, as in tests
        sys.stderr.write(text)
        return
    # Not by way of sys.stderr: its lock, held while nobody reads, would stop the end of Python.
    left = text.encode(errors="backslashreplace")
    while left:
        left = left[os.write(number, left) :]
