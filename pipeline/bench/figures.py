"""Measurements as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pipeline.engines.autotune_choice import Choice
from pipeline.flow.stats import Percentiles

__all__ = [
    "EngineFigures",
    "InferFigures",
    "Report",
    "StageFigures",
    "WholeFigures",
    "middle",
    "middle_of_parts",
]


@dataclass(frozen=True)
class StageFigures:
    """One stage alone: time of a frame, CPU time of the whole process for it, frames a second."""

    count: int
    ms: Percentiles
    cpu_ms: float
    fps: float


@dataclass(frozen=True)
class InferFigures(StageFigures):
    """The engine alone, with so many contexts busy; ``ms`` is of a run, which may be a batch."""

    contexts: int = 1


@dataclass(frozen=True)
class EngineFigures:
    """Measurements of the opened engine; ``infer`` has 1, 2, ... contexts."""

    engine: str
    device: str
    batch: int
    preprocess: StageFigures
    infer: tuple[InferFigures, ...]
    postprocess: StageFigures


@dataclass(frozen=True)
class WholeFigures:
    """The whole pipeline for a while; CPU time is for each result, ``offered_fps`` captured."""

    results: int
    fps: float
    offered_fps: float
    cpu_ms: float
    latency_ms: Percentiles
    loop_lag_ms: Percentiles
    dropped: dict[str, int]


_Figures = TypeVar("_Figures", StageFigures, InferFigures, WholeFigures)


def middle(rounds: Sequence[_Figures]) -> _Figures:
    """Those with the median rate; the slower ones of two."""
    return sorted(rounds, key=lambda figures: figures.fps)[(len(rounds) - 1) // 2]


def middle_of_parts(rounds: Sequence[EngineFigures]) -> EngineFigures:
    """Of each stage those with the median rate."""
    return replace(
        rounds[0],
        preprocess=middle([each.preprocess for each in rounds]),
        infer=tuple(middle(figures) for figures in zip(*(r.infer for r in rounds), strict=True)),
        postprocess=middle([each.postprocess for each in rounds]),
    )


@dataclass(frozen=True)
class Report:
    """All of it.

    ``paced_by_source``: decode is no part of the whole but in the ``live`` run, whose ``rate``
    is then None. ``elsewhere_cores`` were busy with other processes; None where unknown.
    ``choice``: what the settings that are ``auto`` became.
    """

    camera: str
    size: tuple[int, int]
    cores: int
    paced_by_source: bool
    decode: StageFigures
    parts: EngineFigures
    offline: WholeFigures
    rate: float | None
    live: WholeFigures
    overload: WholeFigures
    elsewhere_cores: float | None
    notes: tuple[str, ...] = field(default=())
    choice: Choice | None = None
