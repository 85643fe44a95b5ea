"""Reports of a run: a status line, a table at the end, a summary as JSON."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.errors import SinkError
from pipeline.redact import printable
from pipeline.sinks import screen

if TYPE_CHECKING:
    from pipeline.flow.stats import CameraStats, Percentiles, Stats
from pipeline.text import number, shown

__all__ = [
    "StatusLine",
    "ensure_writable",
    "status",
    "summary",
    "table",
    "write_json",
]

_STAGES = ("capture", "preprocess", "infer", "postprocess")


class _Stream(Protocol):
    def isatty(self) -> bool: ...

    def write(self, text: str, /) -> object: ...

    def flush(self) -> None: ...


class _Loop(Protocol):
    def call_later(self, delay: float, callback: Callable[[], object]) -> Any: ...


def summary(stats: Stats) -> dict[str, Any]:
    """The figures of a run as plain data for JSON; null where nothing was measured."""
    at_start, at_end = stats.driver_allocations
    return {
        "engine": stats.engine,
        "device": stats.device,
        "frames": stats.frames,
        "results": stats.results,
        "dropped": dict(stats.dropped),
        "damaged": stats.damaged,
        "undelivered": dict(stats.undelivered),
        "fps": number(stats.fps),
        "recent_fps": number(stats.recent_fps),
        "elapsed_s": number(stats.elapsed_s),
        "latency_ms": _percentiles(stats.latency_ms),
        "loop_lag_ms": _percentiles(stats.loop_lag_ms),
        "stage_ms": {name: number(value.p50) for name, value in _stages(stats)},
        "stage_p99_ms": {name: number(value.p99) for name, value in _stages(stats)},
        "driver_allocations": {"at_start": at_start, "at_end": at_end},
        "zero_copy": dict(stats.zero_copy),
        "notes": dict(stats.notes),
        "engine_reopened": stats.engine_reopened,
        "cameras": {name: _camera(camera) for name, camera in stats.cameras.items()},
        "events": {source: dict(states) for source, states in stats.events.items()},
        "chosen": None if stats.chosen is None else stats.chosen.data(),
        "ring": {"depth": stats.depth, "slots": dict(stats.slots)},
        "error": None if stats.error is None else printable(stats.error),
    }


def _camera(camera: CameraStats) -> dict[str, Any]:
    return {
        "state": camera.state,
        "frames": camera.frames,
        "results": camera.results,
        "dropped": dict(camera.dropped),
        "damaged": camera.damaged,
        "reconnects": camera.reconnects,
        "fps": number(camera.fps),
        "latency_ms": _percentiles(camera.latency_ms),
    }


def status(stats: Stats) -> str:
    """One line: frame rate, age, drops by cause, slots in use, cameras that do not deliver."""
    missing = [
        f"{name} {camera.state}" for name, camera in stats.cameras.items() if _missing(camera)
    ]
    used = stats.depth - stats.slots.get("free", 0)
    age = stats.latency_ms
    return (
        f"{stats.results} results  {shown(stats.recent_fps)} fps  "
        f"age p50 {shown(age.p50)} p99 {shown(age.p99)} ms  "
        f"dropped {_counts(stats.dropped)}  slots {used}/{stats.depth}"
        + (f"  undelivered {_counts(stats.undelivered)}" if any(stats.undelivered.values()) else "")
        + (f"  {', '.join(missing)}" if missing else "")
    )


def _missing(camera: CameraStats) -> bool:
    return camera.state not in ("live", "ended")


def table(stats: Stats) -> str:
    """The whole run as lines of name and value, the slowest stage marked."""
    at_start, at_end = stats.driver_allocations
    rows = [
        ("engine", f"{stats.engine} on {stats.device}"),
        ("frames", f"{stats.frames} captured, {stats.results} results"),
        ("dropped", _counts(stats.dropped)),
        ("rate", f"{shown(stats.fps)} fps over {shown(stats.elapsed_s)} s"),
        ("age", _pair(stats.latency_ms)),
    ]
    if stats.damaged:
        rows.append(("damaged", f"{stats.damaged} frames"))
    if any(stats.undelivered.values()):
        rows.append(("undelivered", _counts(stats.undelivered)))
    if len(stats.cameras) > 1 or any(camera.reconnects for camera in stats.cameras.values()):
        rows += [(f"  {name}", _camera_line(camera)) for name, camera in stats.cameras.items()]
    stages = _stages(stats)
    slowest = max((value.p50 for _, value in stages if _known(value.p50)), default=None)
    for name, value in stages:
        mark = "  <- slowest" if slowest is not None and value.p50 == slowest else ""
        rows.append((f"  {name}", f"{_pair(value)}{mark}"))
    if _known(stats.loop_lag_ms.p50):
        rows.append(("loop lag", _pair(stats.loop_lag_ms)))
    rows.append(("driver allocations", f"{at_start} at start, {at_end} at end"))
    rows += [(f"  {name}", route) for name, route in stats.zero_copy.items()]
    if stats.chosen is not None:
        rows.append(("chosen", str(stats.chosen)))
    rows += list(stats.notes.items())
    width = max(len(name) for name, _ in rows)
    return printable("\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in rows))


def _camera_line(camera: CameraStats) -> str:
    text = f"{camera.frames} captured, {camera.results} results, age {_pair(camera.latency_ms)}"
    if any(camera.dropped.values()):
        text += f", dropped {_counts(camera.dropped)}"
    return text + (f", reopened {camera.reconnects} times" if camera.reconnects else "")


class StatusLine:
    """Prints the status again and again: in place on a terminal, as plain lines elsewhere.

    ``stats`` is asked each time; None means that there is nothing to show yet.
    """

    def __init__(self, stats: Callable[[], Stats | None], stream: _Stream) -> None:
        self._stats = stats
        self._stream = stream
        self._terminal = stream.isatty()
        self._timer: Any = None

    def start(self, loop: _Loop) -> None:
        """Print every second on a terminal, every five seconds elsewhere, until ``stop``."""
        self._timer = loop.call_later(1.0 if self._terminal else 5.0, lambda: self._tick(loop))

    def stop(self) -> None:
        """Print no more, and clear the line."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            if self._terminal:
                self._write(screen.bottom(""))

    def show(self) -> None:
        """Print the status once."""
        stats = self._stats()
        if stats is None:
            return
        line = status(stats)
        if self._terminal:
            self._write(screen.bottom(line))
        else:
            self._write(f"{line}\n")

    def _tick(self, loop: _Loop) -> None:
        self.start(loop)
        self.show()

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads any more; the run goes on
            self._terminal = False


def ensure_writable(path: str, option: str) -> str:
    """The absolute path, with its folders made; SinkError when nothing can be written there.

    ``-`` is standard output, where ``write_json`` writes to it.
    """
    if path == "-":
        if not sys.stdout.writable():
            raise SinkError(f"{option} -: standard output is closed")
        return path
    target = Path(os.path.abspath(os.path.expanduser(path)))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file():
            if target.is_dir() or not os.access(target, os.W_OK):
                raise IsADirectoryError(errno.EISDIR, "is a folder or takes no data")
            return str(target)  # a pipe or device, where opening to try might wait
        existed = target.exists()
        target.open("ab").close()
        if not existed:
            target.unlink()
    except (OSError, ValueError) as error:
        raise SinkError(f"{option} {path}: cannot be written: {_reason(error)}") from None
    return str(target)


def write_json(path: str, data: Any, option: str) -> None:
    """Write ``data`` as JSON; SinkError naming the option when it cannot be. ``-``: stdout."""
    text = json.dumps(data, indent=2, allow_nan=False) + "\n"
    try:
        if path == "-":
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            with open(path, "w", encoding="utf-8", opener=_open_at_once) as file:
                file.write(text)
    except OSError as error:
        raise SinkError(f"{option} {path}: cannot be written: {_reason(error)}") from None


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for a reader where the path is a named pipe."""
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


def _reason(error: Exception) -> str:
    if getattr(error, "errno", None) == errno.ENXIO:
        return "nobody reads this pipe"
    return str(getattr(error, "strerror", None) or error)


def _stages(stats: Stats) -> list[tuple[str, Percentiles]]:
    return sorted(
        stats.stage_ms.items(),
        key=lambda item: _STAGES.index(item[0]) if item[0] in _STAGES else len(_STAGES),
    )


def _counts(numbers: Mapping[str, int]) -> str:
    causes = ", ".join(f"{cause} {number}" for cause, number in numbers.items() if number)
    return f"{sum(numbers.values())} ({causes})" if causes else "0"


def _percentiles(value: Percentiles) -> dict[str, float | None]:
    return {"p50": number(value.p50), "p99": number(value.p99)}


def _pair(value: Percentiles) -> str:
    return f"p50 {shown(value.p50)} ms, p99 {shown(value.p99)} ms"


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
