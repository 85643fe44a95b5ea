"""Status line, table and summary of a run."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.cli.report import StatusLine, ensure_writable, status, summary, table, write_json
from pipeline.errors import SinkError
from pipeline.flow.stats import CameraStats, Percentiles, Stats

NOTHING = Percentiles(math.nan, math.nan)
STATS = Stats(
    frames=10,
    results=7,
    dropped={"latest": 2, "cancelled": 0, "no_buffer": 1},
    undelivered={"jsonl-0": 4},
    fps=11.0,
    recent_fps=29.97,
    elapsed_s=0.2336,
    latency_ms=Percentiles(12.34, 101.7),
    stage_ms={
        "infer": Percentiles(9.5, 20.0),
        "capture": Percentiles(1.0, 2.0),
        "postprocess": NOTHING,
        "preprocess": Percentiles(0.25, 0.5),
    },
    driver_allocations=(8, 8),
    driver_bytes=4096,
    cameras={},
    events={},
    engine_reopened=0,
    zero_copy={"input 0 'input.1'": "zero-copy", "output 0 'heat'": "copied by the engine"},
    engine="simulated",
    device="simulated NPU",
    depth=4,
    slots={"free": 1, "leased": 3},
    error=None,
)
BEFORE = dataclasses.replace(
    STATS, frames=0, results=0, dropped={}, undelivered={}, fps=0.0, elapsed_s=0.0,
    latency_ms=NOTHING, stage_ms={}, zero_copy={}, slots={},
)  # fmt: skip


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class ManualLoop:
    """Timers that fire when told."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.callback: Callable[[], object] | None = None

    def call_later(self, delay: float, callback: Callable[[], object]) -> ManualLoop:
        self.delays.append(delay)
        self.callback = callback
        return self

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        assert self.callback is not None
        self.callback()


CAMERA = CameraStats("live", 10, 7, {"latest": 3}, 0, 15.0, Percentiles(12.34, 101.7))
LOST = dataclasses.replace(CAMERA, state="lost", reconnects=2, dropped={})


def test_cameras_are_told_apart() -> None:
    stats = dataclasses.replace(
        STATS,
        cameras={"front": CAMERA, "rear": LOST},
        events={"rear": {"connecting": 3, "live": 2, "lost": 2}},
    )
    assert status(stats).endswith("undelivered 4 (jsonl-0 4)  rear lost")
    lines = table(stats).splitlines()
    wanted = "10 captured, 7 results, age p50 12.3 ms, p99 102 ms, dropped 3 (latest 3)"
    assert [line.split(maxsplit=1) for line in lines[5:8]][1:] == [
        ["front", wanted],
        ["rear", "10 captured, 7 results, age p50 12.3 ms, p99 102 ms, reopened 2 times"],
    ]
    told = json.loads(json.dumps(summary(stats)))
    assert told["cameras"]["rear"]["reconnects"] == 2
    assert told["cameras"]["front"]["dropped"] == {"latest": 3}
    assert told["events"]["rear"] == {"connecting": 3, "live": 2, "lost": 2}


def test_the_status_line_names_rate_age_drops_and_slots() -> None:
    assert status(STATS) == (
        "7 results  30 fps  age p50 12.3 p99 102 ms  dropped 3 (latest 2, no_buffer 1)  slots 3/4"
        "  undelivered 4 (jsonl-0 4)"
    )
    assert "age p50 - p99 - ms  dropped 0  " in status(BEFORE)


def test_the_table_is_in_order_and_marks_the_slowest_stage() -> None:
    lines = table(STATS).splitlines()
    names = [line.split("  ")[0 if line[0] != " " else 1].strip() for line in lines]
    assert names == [
        "engine", "frames", "dropped", "rate", "age", "undelivered", "capture", "preprocess",
        "infer", "postprocess", "driver allocations", "input 0 'input.1'", "output 0 'heat'",
    ]  # fmt: skip
    assert [line for line in lines if "slowest" in line] == [lines[names.index("infer")]]
    assert lines[names.index("postprocess")].endswith("p50 - ms, p99 - ms")
    assert table(BEFORE)


def test_the_lag_of_the_loop_is_told_once_it_was_measured() -> None:
    assert "loop lag" not in table(STATS)
    assert summary(STATS)["loop_lag_ms"] == {"p50": None, "p99": None}
    lagging = dataclasses.replace(STATS, loop_lag_ms=Percentiles(0.5, 12.0))
    assert "p50 0.5 ms, p99 12 ms" in next(
        line for line in table(lagging).splitlines() if line.startswith("loop lag")
    )
    assert summary(lagging)["loop_lag_ms"] == {"p50": 0.5, "p99": 12.0}


def test_the_summary_is_json_without_nan() -> None:
    told = json.loads(json.dumps(summary(STATS), allow_nan=False))
    assert told["dropped"] == {"latest": 2, "cancelled": 0, "no_buffer": 1}
    assert told["latency_ms"] == {"p50": 12.34, "p99": 101.7}
    assert told["stage_ms"] == {
        "capture": 1.0,
        "preprocess": 0.25,
        "infer": 9.5,
        "postprocess": None,
    }
    assert told["stage_p99_ms"]["infer"] == 20.0
    assert told["driver_allocations"] == {"at_start": 8, "at_end": 8}
    assert told["zero_copy"]["input 0 'input.1'"] == "zero-copy"
    assert json.dumps(summary(BEFORE), allow_nan=False)


def test_an_error_in_the_summary_has_no_secrets() -> None:
    failed = dataclasses.replace(STATS, error="rtsp://bob:hunter2@cam/x: it stopped")
    assert summary(failed)["error"] == "rtsp://***@cam/x: it stopped"


def test_on_a_terminal_one_line_is_rewritten_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream, loop = Terminal(), ManualLoop()
    line = StatusLine(lambda: STATS, stream)
    line.start(loop)
    loop.fire()
    loop.fire()
    line.stop()
    shown = f"\r{status(STATS)[:19]}\x1b[K"
    assert stream.getvalue() == shown * 2 + "\r\x1b[K"
    assert loop.delays == [1.0, 1.0, 1.0]
    assert loop.callback is None


def test_elsewhere_there_are_plain_lines_each_five_seconds() -> None:
    stream, loop = io.StringIO(), ManualLoop()
    answers = iter([None, STATS])
    line = StatusLine(lambda: next(answers), stream)
    line.start(loop)
    loop.fire()
    assert stream.getvalue() == ""
    loop.fire()
    line.stop()
    assert stream.getvalue() == status(STATS) + "\n"
    assert set(loop.delays) == {5.0}


def test_a_stream_that_closed_does_not_end_the_run() -> None:
    stream, loop = Terminal(), ManualLoop()
    line = StatusLine(lambda: STATS, stream)
    line.start(loop)
    stream.close()
    loop.fire()
    line.stop()


def test_writable_places_are_left_as_they_were(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("before")
    assert ensure_writable(str(kept), "--summary") == str(kept)
    assert kept.read_text() == "before"
    made = tmp_path / "a/b/new.json"
    ensure_writable(str(made), "--summary")
    assert not made.exists()
    write_json(str(made), {"x": None}, "--summary")
    assert json.loads(made.read_text()) == {"x": None}
    assert ensure_writable("/dev/null", "--summary") == "/dev/null"


@pytest.mark.parametrize("path", [".", "file/x", "x\0y"])
def test_an_unwritable_place_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError) as caught:
        ensure_writable(path, "--summary")
    assert str(caught.value).startswith(f"--summary {path}: cannot be written: ")


def test_a_summary_that_cannot_be_kept_is_named() -> None:
    with pytest.raises(SinkError, match="--summary /dev/full: cannot be written: No space"):
        write_json("/dev/full", {}, "--summary")


def test_a_summary_does_not_wait_for_the_reader_of_a_pipe(tmp_path: Path) -> None:
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    with pytest.raises(SinkError, match=r"--summary .*fifo: .*: nobody reads this pipe"):
        write_json(fifo, {}, "--summary")
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_json(fifo, {"a": 1}, "--summary")
        assert json.loads(os.read(reader, 1000)) == {"a": 1}
    finally:
        os.close(reader)
