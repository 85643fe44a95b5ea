"""Choice of the ``auto`` settings from measured figures."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple

__all__ = ["Aim", "Choice", "Span", "Tried", "choose", "counts_to_try", "figures"]

Aim = Literal["latency", "throughput"]
Span = tuple[int, int]
"""When a run began and ended, nanoseconds."""

# Figures this close are the same: then the one that needs less counts.
_SAME = 0.05
_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


class Tried(NamedTuple):
    """One setting, and the engine with it: frames a second, and the median time of a run."""

    contexts: int
    threads: int | None
    fps: float
    ms: float
    runs: int

    def better(self, other: Tried) -> Tried:
        """Both measurements of it together: what else the machine did made one of them worse."""
        return self._replace(
            fps=max(self.fps, other.fps), ms=min(self.ms, other.ms), runs=self.runs + other.runs
        )

    def __str__(self) -> str:
        threads = "" if self.threads is None else f" of {self.threads} threads"
        return f"{self.contexts}{threads}: {_short(self.fps)}/s, {_short(self.ms)} ms"


class Choice(NamedTuple):
    """Chosen values, their aim, the time it took, and all values tried."""

    aim: Aim
    contexts: int
    threads: int | None
    depth: int
    seconds: float
    tried: tuple[Tried, ...]

    def __str__(self) -> str:
        threads = "" if self.threads is None else f", threads {self.threads}"
        chosen = f"contexts {self.contexts}{threads}, ring depth {self.depth}"
        if not self.tried:
            return f"{chosen}: there was nothing to choose"
        tried = "; ".join(str(each) for each in self.tried)
        return f"{chosen}: probed for {self.aim} in {self.seconds:.2g} s ({tried})"

    def data(self) -> dict[str, Any]:
        """The same as plain data for JSON."""
        return {
            "aim": self.aim,
            "contexts": self.contexts,
            "threads": self.threads,
            "ring_depth": self.depth,
            "seconds": round(self.seconds, 3),
            "tried": [
                {**each._asdict(), "fps": round(each.fps, 2), "ms": round(each.ms, 4)}
                for each in self.tried
            ],
        }


def choose(tried: Iterable[Tried], aim: Aim) -> Tried:
    """The least contexts that are within 5 % of the best, and of these the least threads.

    The best is the shortest run for ``latency``, the most frames a second for ``throughput``. For
    ``latency`` the most threads: a run that all cores share suffers least when one is busy.
    """
    found = list(tried)
    if aim == "latency":
        limit = min(each.ms for each in found) * (1 + _SAME)
        near = [each for each in found if each.ms <= limit]
        return min(near, key=lambda each: (each.contexts, -(each.threads or 0)))
    least = max(each.fps for each in found) * (1 - _SAME)
    near = [each for each in found if each.fps >= least]
    return min(near, key=lambda each: (each.contexts, each.threads or 0))


def counts_to_try(most: int) -> list[int]:
    """Numbers of contexts from 1 to ``most``, in growing steps."""
    return [count for count in _COUNTS if count < most] + [most]


def figures(spans: Collection[Sequence[Span]], batch: int = 1) -> tuple[float, float]:
    """Frames a second and the median milliseconds of a run, from the runs of each context.

    The first run of each does not count, and the rate is that of the time in which all contexts
    were busy; a run at its edge counts by its share.
    """
    counted = [runs[1:] or runs for runs in spans]
    begin = max(runs[0][0] for runs in counted)
    end = min(runs[-1][1] for runs in counted)
    if end <= begin:  # they were never all busy
        begin = min(runs[0][0] for runs in counted)
        end = max(runs[-1][1] for runs in counted)
    every = [run for runs in counted for run in runs]
    time = statistics.median(finished - started for started, finished in every)
    return _rate(every, begin, end) * batch, time / 1e6


def _rate(runs: Iterable[Span], begin: int, end: int) -> float:
    """Runs a second from ``begin`` to ``end``, where those that are partly outside count partly."""
    shares = (
        max(0, min(end, finished) - max(begin, started)) / max(1, finished - started)
        for started, finished in runs
    )
    return sum(shares) / max(1, end - begin) * 1e9


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
