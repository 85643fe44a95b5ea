"""Medians and ratios of the rounds, and the tables made of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Row", "differing", "markdown", "rows", "table"]

Rounds = Mapping[str, Sequence[Mapping[str, Any]]]

_HEADINGS = ("", "fps", "CPU ms", "RSS MB", "ours / it, fps", "ours / it, CPU")
# Images resized elsewhere differ a little, and many scores lie close to the threshold.
_TOLERANCE = 0.25


class Row(NamedTuple):
    """Medians of one peer, and of what ``ours`` was in each round as a share of it."""

    name: str
    fps: float
    cpu_ms: float
    rss_mb: float | None
    fps_ratio: float | None
    cpu_ratio: float | None


def rows(rounds: Rounds) -> list[Row]:
    """One for each peer, in the order of ``rounds``; ratios are of runs of the same round."""
    made = []
    for name, reports in rounds.items():
        ours = rounds.get("ours", ()) if name != "ours" else ()
        fps, cpu_ms, rss_mb = (_median(reports, key) for key in ("fps", "cpu_ms", "rss_mb"))
        assert fps is not None
        assert cpu_ms is not None
        ratios = (_ratio(ours, reports, key) for key in ("fps", "cpu_ms"))
        made.append(Row(name, fps, cpu_ms, rss_mb, *ratios))
    return made


def differing(rounds: Rounds) -> list[str]:
    """Peers whose results are not those of ``ours``, by more than resizing explains."""
    expected = _median(rounds.get("ours", ()), "checksum")
    if expected is None:
        return []
    found = {name: _median(reports, "checksum") for name, reports in rounds.items()}
    return [
        name
        for name, figure in found.items()
        if figure is not None and abs(figure - expected) > _TOLERANCE * abs(expected)
    ]


def table(made: Sequence[Row]) -> str:
    """For a terminal."""
    widths = (20, 8, 9, 9, 17, 17)
    return "\n".join(
        "".join(
            f"{cell:<{width}}" if index == 0 else f"{cell:>{width}}"
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        for cells in (_HEADINGS, *map(_cells, made))
    )


def markdown(made: Sequence[Row]) -> str:
    """The same for a document."""
    lines = [_HEADINGS, ("---",) + ("---:",) * (len(_HEADINGS) - 1), *map(_cells, made)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(row: Row) -> tuple[str, ...]:
    def told(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    return (
        row.name,
        f"{row.fps:.0f}",
        f"{row.cpu_ms:.2f}",
        told(row.rss_mb, ".0f"),
        told(row.fps_ratio, ".2f"),
        told(row.cpu_ratio, ".2f"),
    )


def _median(reports: Sequence[Mapping[str, Any]], key: str) -> float | None:
    values = [float(report[key]) for report in reports if key in report]
    return statistics.median(values) if values else None


def _ratio(
    ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]], key: str
) -> float | None:
    ratios = [float(our[key]) / float(their[key]) for our, their in zip(ours, theirs, strict=False)]
    return statistics.median(ratios) if ratios else None
