"""Slow and failing sinks hold up neither the engine nor one another."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline import Pipeline, SinkError
from pipeline.flow.stats import Stats

if TYPE_CHECKING:
    from tests.conftest import Until

pytestmark = pytest.mark.usefixtures("no_leak")

FULL = "/dev/full"  # every write to it fails: no space left on device


def config(*sinks: dict[str, Any], **source: Any) -> dict[str, Any]:
    return {
        "source": {"uri": "synthetic:", "width": 64, "height": 48, **source},
        "model": {"engine": "simulated", "input_shape": [1, 48, 64, 3]},
        "sinks": list(sinks),
    }


def read_on(pipe: int) -> None:
    """Read until there stands the word end."""
    while not os.read(pipe, 1 << 16).endswith(b"end"):
        pass


def check_written(path: Path, stats: Stats, sink: str) -> None:
    """A sink without trouble got every result but those that it had no time for."""
    written = sequences(path)
    assert written == sorted(set(written))
    assert len(written) + stats.undelivered.get(sink, 0) == stats.results
    assert len(written) > stats.results / 2


def sequences(path: Path) -> list[int]:
    return [json.loads(line)["sequence"] for line in path.read_text().splitlines()]


async def test_a_sink_that_fails_ends_the_pipeline_unless_told_otherwise(tmp_path: Path) -> None:
    good = {"kind": "jsonl", "path": str(tmp_path / "good.jsonl")}
    pipe = Pipeline(config(good, {"kind": "jsonl", "path": FULL}))
    with pytest.raises(SinkError, match=r"/dev/full: cannot be written: No space left"):
        async with pipe:
            await pipe.wait()


@pytest.mark.parametrize("wrong", [{"path": FULL + "/out.mp4"}, {"codec": "ZZZZ"}])
async def test_a_start_that_fails_keeps_the_files_of_earlier_runs(
    tmp_path: Path, wrong: dict[str, str]
) -> None:
    kept = [tmp_path / "lines.jsonl", tmp_path / "one.mp4", tmp_path / "two.mp4"]
    for path in kept:
        path.write_text("of an earlier run")
    sinks = [
        {"kind": "jsonl" if path.suffix == ".jsonl" else "video", "path": str(path)}
        for path in kept
    ]
    pipe = Pipeline(config(*sinks[:2], {**sinks[2], **wrong}))
    with pytest.raises(SinkError, match=r"sinks\.2"):
        await pipe.open()
    assert [path.read_text() for path in kept] == ["of an earlier run"] * 3


async def test_a_run_without_results_leaves_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text("of an earlier run")
    pipe = Pipeline(config({"kind": "jsonl", "path": str(tmp_path / "lines.jsonl")}))
    async with pipe:
        pipe.stop()
        await pipe.wait()
    assert pipe.stats().results == 0
    assert (tmp_path / "lines.jsonl").read_text() == ""


async def test_a_sink_that_fails_can_be_left_out(tmp_path: Path) -> None:
    good = {"kind": "jsonl", "path": str(tmp_path / "good.jsonl")}
    bad = {"kind": "jsonl", "path": FULL, "on_error": "disable"}
    async with Pipeline(config(bad, good, frames=50)) as pipe:
        await pipe.wait()
    assert sequences(tmp_path / "good.jsonl") == list(range(50))
    stats = pipe.stats()
    assert stats.results == 50
    assert stats.events["jsonl-0"] == {"failed": 1}
    assert "jsonl-1" not in stats.events
    reasons = [event.reason async for event in pipe.events() if event.source == "jsonl-0"]
    assert reasons == [
        "jsonl: /dev/full: cannot be written: No space left on device; the pipeline goes on "
        "without this sink"
    ]
    assert stats.undelivered == {"jsonl-0": 50}  # told, as everything that is lost


async def test_a_sink_that_fails_for_a_while_is_tried_again(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A pipe whose reader has gone and comes back."""
    monkeypatch.setattr("pipeline.flow.sink._REMINDER_SECONDS", 0.0)
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    good = {"kind": "jsonl", "path": str(tmp_path / "good.jsonl")}
    broken = {"kind": "jsonl", "path": str(fifo), "on_error": "retry", "overflow": "drop_newest"}
    pipe = Pipeline(config(broken, good, fps=200))
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    await pipe.open()
    running = asyncio.ensure_future(pipe.wait())
    await until(lambda: pipe.stats().results > 5)
    os.close(reader)
    await until(lambda: pipe.stats().events.get("jsonl-0", {}).get("failed", 0) == 1)
    before = pipe.stats().results
    await until(lambda: pipe.stats().results > before + 50)  # the others go on
    await until(lambda: "jsonl-0: still failing after " in caplog.text)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    await until(lambda: pipe.stats().events["jsonl-0"].get("reopened", 0) == 1)
    await pipe.drain()
    await running
    os.close(reader)
    stats = pipe.stats()
    check_written(tmp_path / "good.jsonl", stats, "jsonl-1")
    assert stats.undelivered["jsonl-0"] > 0
    assert stats.events["jsonl-0"] == {"failed": 1, "reopened": 1}
    assert pipe.abandoned == []


async def test_a_sink_that_is_stuck_costs_its_own_results_only(
    tmp_path: Path, until: Until
) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    good = {"kind": "jsonl", "path": str(tmp_path / "good.jsonl")}
    stuck = {"kind": "jsonl", "path": str(fifo)}
    reader = os.open(fifo, os.O_RDWR)  # and never reads until the end
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    pipe = Pipeline(config(stuck, good, fps=500, overflow="latest"))
    await pipe.open()
    running = asyncio.ensure_future(pipe.wait())
    await until(lambda: pipe.stats().undelivered.get("jsonl-0", 0) > 100)
    await until(lambda: pipe.stats().slots.get("leased", 0) == 0)  # nothing waits for it
    assert pipe.health().problems == ("sink jsonl-0: too slow, results are left out",)
    reading = asyncio.ensure_future(asyncio.to_thread(read_on, reader))
    await pipe.drain()
    await running
    os.write(reader, b"end")
    await reading
    os.close(reader)
    check_written(tmp_path / "good.jsonl", pipe.stats(), "jsonl-1")
    assert pipe.abandoned == []


async def test_frames_that_are_too_old_are_dropped_before_inference() -> None:
    """Of a file that waits for a slow engine, only what is young enough is inferred."""
    made = config(fps=200, overflow="block", max_age_ms=30, queue=8)
    made["model"]["options"] = {"latency_ms": 20}
    made["ring"] = {"depth": 1}
    async with Pipeline(made, max_frames=100) as pipe:
        await pipe.wait()
    stats = pipe.stats()
    assert stats.dropped["stale"] > 20
    assert stats.results > 5
    assert stats.frames == 100 == stats.results + sum(stats.dropped.values())


async def test_a_sink_that_never_works_again_does_not_hold_up_the_end(until: Until) -> None:
    bad = {"kind": "jsonl", "path": FULL, "on_error": "retry"}
    pipe = Pipeline(config(bad, frames=20, overflow="drop_newest"))
    await pipe.open()
    running = asyncio.ensure_future(pipe.wait())
    await until(lambda: "failed" in pipe.stats().events.get("jsonl-0", {}))
    assert "sink jsonl-0: failed" in pipe.health().problems
    with pytest.raises(SinkError, match="No space left") as caught:
        await running
    lost = pipe.stats().undelivered["jsonl-0"]
    assert str(caught.value).endswith(f"; {lost} results were not written")
    assert pipe.stats().slots == {"free": 4}
