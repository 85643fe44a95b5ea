"""The child's side of a server: its behaviour from the parent, and the pace of a camera."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any, Generic, TypeVar

from .behaviour import Behaviour

__all__ = ["Child", "Ticker", "log"]

B = TypeVar("B", bound=Behaviour)


def log(message: str) -> None:
    """A line in the server's log, which failing tests show."""
    sys.stderr.write(f"{time.monotonic():.3f} {message}\n")
    sys.stderr.flush()


class Child(Generic[B]):
    """The running server's state.

    ``now`` is the behaviour of this moment; lines on standard input replace it, and the end of
    standard input, which comes when the parent dies, ends the process.
    """

    def __init__(self, kind: type[B]) -> None:
        self._kind = kind
        self.now = self._read(sys.argv[1])
        self.epoch = time.monotonic()
        threading.Thread(target=self._listen, name="control", daemon=True).start()

    def wait_until_due(self) -> None:
        """Let the seconds pass in which the server refuses connections."""
        threading.Event().wait(max(0.0, self.epoch + self.now.late - time.monotonic()))

    def ready(self) -> None:
        """Tell the parent that the server listens."""
        sys.stdout.write(json.dumps({"epoch": self.epoch}) + "\n")
        sys.stdout.flush()

    def _read(self, text: str) -> B:
        values: dict[str, Any] = json.loads(text)
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return self._kind(**values)

    def _listen(self) -> None:
        for line in sys.stdin:
            self.now = self._read(line)
            log(f"now {self.now}")
        os._exit(0)


class Ticker:
    """Numbers of frames at their pace; a slow caller misses some, as with a camera."""

    def __init__(self, epoch: float, fps: float) -> None:
        self._epoch = epoch
        self._fps = fps
        self._last = self._current()

    def wait(self, stop: threading.Event) -> int | None:
        """The next number when it is due; None once ``stop`` is set."""
        self._last = max(self._last + 1, self._current())
        due = self._epoch + self._last / self._fps
        return None if stop.wait(max(0.0, due - time.monotonic())) else self._last

    def _current(self) -> int:
        return int((time.monotonic() - self._epoch) * self._fps)
