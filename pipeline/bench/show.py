"""The figures as a table for people and as plain data for JSON."""

from __future__ import annotations

from typing import Any

from pipeline.bench.figures import Report, StageFigures, WholeFigures
from pipeline.bench.verdict import Verdict, best
from pipeline.flow.stats import Percentiles
from pipeline.redact import printable
from pipeline.text import number, shown

__all__ = ["data", "table"]


def data(report: Report, verdict: Verdict) -> dict[str, Any]:
    """The report as plain data for JSON; null where nothing was measured."""
    parts, offline = report.parts, report.offline
    return {
        "camera": report.camera,
        "size": list(report.size),
        "engine": parts.engine,
        "device": parts.device,
        "cores": report.cores,
        "elsewhere_cores": number(report.elsewhere_cores),
        "stage_ms": {name: number(stage.ms.p50) for name, stage in _stages(report)},
        "stage_p99_ms": {name: number(stage.ms.p99) for name, stage in _stages(report)},
        "stage_cpu_ms": {name: number(stage.cpu_ms) for name, stage in _stages(report)},
        "infer": [
            {
                "contexts": each.contexts,
                "fps": number(each.fps),
                "ms": _pair(each.ms),
                "cpu_ms": number(each.cpu_ms),
            }
            for each in parts.infer
        ],
        "chosen": None if report.choice is None else report.choice.data(),
        "bounds_fps": {name: number(bound) for name, bound in verdict.bounds_fps.items()},
        "limit_fps": number(verdict.limit_fps),
        "reached_fps": number(offline.fps),
        "reached_ratio": number(verdict.reached_ratio),
        "cpu_ms_per_frame": number(offline.cpu_ms),
        "latency_ms": {
            "unloaded": _pair(report.live.latency_ms),
            "overload": _pair(report.overload.latency_ms),
        },
        "loop_lag_ms": _pair(offline.loop_lag_ms),
        "live": {"rate": number(report.rate), **_whole(report.live)},
        "overload": _whole(report.overload),
        "bottleneck": verdict.bottleneck,
        "reason": verdict.reason,
        "advice": list(verdict.advice),
        "notes": [*report.notes, *verdict.doubts],
    }


def _whole(figures: WholeFigures) -> dict[str, Any]:
    return {
        "offered_fps": number(figures.offered_fps),
        "fps": number(figures.fps),
        "cpu_ms_per_frame": number(figures.cpu_ms),
        "dropped": figures.dropped,
    }


def table(report: Report, verdict: Verdict) -> str:
    """The same as lines for people."""
    parts = report.parts
    width, height = report.size
    lines = [
        f"{report.camera} {width}x{height}, {parts.engine} on {parts.device}, {report.cores} cores",
        "",
        f"{'alone':<16}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>9}{'fps':>9}",
        *(_stage_line(name, stage) for name, stage in _rows(report)),
        "",
    ]
    rows = [
        ("limit", f"{shown(verdict.limit_fps)} fps ({_bounds(verdict)})"),
        (
            "reached",
            f"{shown(report.offline.fps)} fps, {verdict.reached_ratio:.2f} of the limit; "
            f"{shown(report.offline.cpu_ms)} CPU ms a frame, "
            f"the parts alone {shown(verdict.cpu_ms)}",
        ),
        ("live", _live(report.live)),
        ("overload", _live(report.overload)),
        ("loop lag", _told(report.offline.loop_lag_ms)),
        ("bottleneck", f"{verdict.bottleneck}: {verdict.reason}"),
        ("would help", "; ".join(verdict.advice) or "nothing that can be set"),
        *([] if report.choice is None else [("chosen", str(report.choice))]),
        *(("note", note) for note in (*report.notes, *verdict.doubts)),
    ]
    lines += [f"{name:<12}{text}" for name, text in rows]
    return printable("\n".join(line.rstrip() for line in lines))


def _stages(report: Report) -> list[tuple[str, StageFigures]]:
    parts = report.parts
    return [
        ("decode", report.decode),
        ("preprocess", parts.preprocess),
        ("infer", best(parts.infer)),
        ("postprocess", parts.postprocess),
    ]


def _rows(report: Report) -> list[tuple[str, StageFigures]]:
    parts = report.parts
    return [
        ("decode", report.decode),
        ("preprocess", parts.preprocess),
        *((f"infer, {each.contexts} at once", each) for each in parts.infer),
        ("postprocess", parts.postprocess),
    ]


def _stage_line(name: str, stage: StageFigures) -> str:
    figures = (stage.ms.p50, stage.ms.p99, stage.cpu_ms, stage.fps)
    return f"{name:<16}" + "".join(f"{shown(figure):>9}" for figure in figures)


def _bounds(verdict: Verdict) -> str:
    return ", ".join(f"{name} {shown(bound)}" for name, bound in verdict.bounds_fps.items())


def _live(figures: WholeFigures) -> str:
    dropped = sum(figures.dropped.values())
    return (
        f"{shown(figures.offered_fps)} fps offered, {shown(figures.fps)} results/s, "
        f"{dropped} dropped; age {_told(figures.latency_ms)}"
    )


def _told(value: Percentiles) -> str:
    return f"p50 {shown(value.p50)} ms, p99 {shown(value.p99)} ms"


def _pair(value: Percentiles) -> dict[str, float | None]:
    return {"p50": number(value.p50), "p99": number(value.p99)}
