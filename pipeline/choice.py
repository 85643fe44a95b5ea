"""What ``auto`` becomes: a pure choice between figures that were measured."""

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
_PARTS = 3
_RUNS_OF_A_PART = 10
_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


class Tried(NamedTuple):
    """One setting, and the engine with it: frames a second, and the median time of a run."""

    contexts: int
    threads: int | None
    fps: float
    ms: float
    runs: int

    def __str__(self) -> str:
        threads = "" if self.threads is None else f" of {self.threads} threads"
        return f"{self.contexts}{threads}: {_short(self.fps)}/s, {_short(self.ms)} ms"


class Choice(NamedTuple):
    """What was chosen, what for, how long it took, and all that was tried."""

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
    """The least contexts, and of these the least threads, that are within 5 % of the best.

    The best is the shortest run for ``latency``, the most frames a second for ``throughput``.
    """
    found = list(tried)
    if aim == "latency":
        limit = min(each.ms for each in found) * (1 + _SAME)
        near = [each for each in found if each.ms <= limit]
    else:
        least = max(each.fps for each in found) * (1 - _SAME)
        near = [each for each in found if each.fps >= least]
    return min(near, key=lambda each: (each.contexts, each.threads or 0))


def counts_to_try(most: int) -> list[int]:
    """Numbers of contexts from 1 to ``most``, in growing steps."""
    return [count for count in _COUNTS if count < most] + [most]


def figures(spans: Collection[Sequence[Span]], batch: int = 1) -> tuple[float, float]:
    """Frames a second and the median milliseconds of a run, from the runs of each context.

    A context computes one run after another, so its rate is runs by the time from the first
    one's beginning to the last one's end. Of many runs the best third counts: whatever else
    the machine does makes a part of them slower and never faster.
    """
    least = min(len(runs) for runs in spans)
    parts = _PARTS if least >= _PARTS * _RUNS_OF_A_PART else 1
    rates = [sum(_rate(_part(runs, i, parts)) for runs in spans) for i in range(parts)]
    times = [end - begin for runs in spans for begin, end in runs]
    return max(rates) * batch, statistics.median(times) / 1e6


def _part(runs: Sequence[Span], index: int, parts: int) -> Sequence[Span]:
    return runs[len(runs) * index // parts : len(runs) * (index + 1) // parts]


def _rate(runs: Sequence[Span]) -> float:
    return len(runs) / max(1, runs[-1][1] - runs[0][0]) * 1e9


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
