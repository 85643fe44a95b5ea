"""Closing is done once, in a bounded time, and to its end, whatever cancels those who wait."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline import ClosedError, Pipeline, Result
from tests.conftest import Until
from tests.integration.complaints import HANG, config, synthetic
from tests.waiting import becomes

pytestmark = [pytest.mark.usefixtures("no_leak")]


class SlowSink:
    """A sink that takes a while to close, or without limit."""

    def __init__(self, seconds: float | None) -> None:
        self.free = threading.Event()
        self.closing = threading.Event()
        self.closed = 0
        self._seconds = seconds

    def open(self, stream: object) -> None:
        pass

    def begin(self) -> None:
        pass

    def write(self, result: object) -> None:
        pass

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        self.closing.set()
        self.free.wait(self._seconds)
        self.closed += 1


Make = Callable[..., tuple[Pipeline, SlowSink]]


@pytest.fixture
def slow() -> Make:
    """A pipeline with a sink that takes so long to close."""

    def make(seconds: float | None = 0.5, **source: float) -> tuple[Pipeline, SlowSink]:
        sink = SlowSink(seconds)
        settings = config(source=synthetic(**(source or {"fps": 100})))
        return Pipeline(settings, sinks=[sink]), sink

    return make


def check_closed(pipe: Pipeline, sink: SlowSink) -> None:
    assert sink.closed == 1
    assert pipe.abandoned == []
    stats = pipe.stats()
    assert stats.slots == {"free": stats.depth}
    assert stats.frames == stats.results + sum(stats.dropped.values())
    assert pipe._parts is not None
    assert pipe._parts.engine.executor.counters().live_blocks == 0


async def use(pipe: Pipeline, begun: asyncio.Event) -> None:
    async with pipe:
        async for _ in pipe:
            begun.set()


@pytest.mark.both_loops
@pytest.mark.parametrize("cancels", [1, 2, 3])
async def test_cancelled_again_and_again_it_closes_to_the_end(
    slow: Make, until: Until, cancels: int
) -> None:
    pipe, sink = slow()
    begun = asyncio.Event()
    task = asyncio.create_task(use(pipe, begun))
    await begun.wait()
    task.cancel("first")
    await until(sink.closing.is_set)
    for _ in range(cancels - 1):
        task.cancel("later")
        await asyncio.sleep(0)
    async with asyncio.timeout(HANG):
        with pytest.raises(asyncio.CancelledError, match="first"):
            await task
    assert task.cancelling() == cancels
    check_closed(pipe, sink)


async def test_a_close_that_times_out_has_closed_all_the_same(slow: Make) -> None:
    pipe, sink = slow()
    await pipe.open()
    await anext(aiter(pipe))
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pipe.close(), 0.1)
    assert 0.4 < time.monotonic() - began < 2
    check_closed(pipe, sink)


async def test_timeouts_and_task_groups_around_it_stay_what_they_are(slow: Make) -> None:
    class BodyError(Exception):
        pass

    async def fails(begun: asyncio.Event) -> None:
        await begun.wait()
        raise BodyError

    pipe, sink = slow()
    begun = asyncio.Event()

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(use(pipe, begun))
            group.create_task(fails(begun))

    with pytest.raises(ExceptionGroup) as caught:
        await together()
    assert caught.group_contains(BodyError)
    check_closed(pipe, sink)

    async def in_time(pipe: Pipeline) -> None:
        async with asyncio.timeout(0.2):
            await use(pipe, asyncio.Event())

    pipe, sink = slow()
    with pytest.raises(TimeoutError):
        await in_time(pipe)
    check_closed(pipe, sink)


async def test_all_who_close_wait_for_one_closing(slow: Make) -> None:
    pipe, sink = slow()
    await pipe.open()
    waiting = asyncio.create_task(pipe.wait())
    await asyncio.sleep(0)
    await asyncio.gather(*(pipe.close() for _ in range(3)), pipe.drain(), waiting)
    check_closed(pipe, sink)


async def test_a_line_whose_write_was_under_way_counts_as_written(
    slow: Make, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, sink = slow(0)
    begun, go_on, written = threading.Event(), threading.Event(), []

    def write(result: Result) -> None:
        begun.set()
        go_on.wait()
        assert result.outputs[0].array.size  # it is lent for as long as the call takes
        written.append(result.sequence)

    monkeypatch.setattr(sink, "write", write)
    await pipe.open()
    waiting = asyncio.create_task(pipe.wait())
    await until(begun.is_set)
    pipe.cancel()
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(HANG):
        await waiting
    stats = pipe.stats()
    assert len(written) >= 1
    assert len(written) + stats.undelivered.get("SlowSink-0", 0) == stats.results
    check_closed(pipe, sink)


@pytest.mark.parametrize(("end", "limit"), [("cancel", 2.0), ("end", 6.0)])
async def test_closing_is_bounded(slow: Make, end: str, limit: float, until: Until) -> None:
    pipe, sink = slow(None, frames=5)
    began = time.monotonic()
    async with pipe:
        if end == "end":
            await pipe.wait()
    assert time.monotonic() - began < limit + 0.5
    assert [part.name for part in pipe.abandoned] == ["sink-SlowSink-0"]
    sink.free.set()
    await until(lambda: sink.closed == 1)


async def test_the_end_of_a_loop_closes_an_open_pipeline(slow: Make) -> None:
    pipe, sink = slow(0.1)

    async def leave_it(pipe: Pipeline) -> None:
        await pipe.open()
        await anext(aiter(pipe))

    await asyncio.to_thread(asyncio.run, leave_it(pipe))
    check_closed(pipe, sink)
    held = [pipe]
    del pipe
    with pytest.warns(ResourceWarning, match="unclosed pipeline"):
        forget(held)


def forget(held: list[Pipeline]) -> None:
    held.clear()
    gc.collect()


async def test_a_cancelled_scope_of_anyio_burns_no_processor(slow: Make) -> None:
    anyio = pytest.importorskip("anyio")
    pipe, sink = slow(0.8)
    with anyio.CancelScope() as scope:
        async with pipe:
            async for _ in pipe:
                spent = time.thread_time()
                scope.cancel()
    assert scope.cancelled_caught
    assert time.thread_time() - spent < 0.05
    check_closed(pipe, sink)


PROGRAM = """\
import signal, sys
from pipeline import Pipeline

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
pipe = Pipeline({
    "source": {"uri": "synthetic:?width=64&height=48&fps=100"},
    "model": {"engine": "simulated", "input_shape": [1, 48, 64, 3]},
    "sinks": [{"kind": "jsonl", "path": sys.argv[1]}],
})
stats = pipe.run(handle_signals=sys.argv[2] == "handled")
print(stats.frames, stats.results, len(stats.dropped), len(stats.undelivered))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("how", ["handled", "left"])
def test_run_drains_on_a_signal_if_asked(number: signal.Signals, how: str, tmp_path: Path) -> None:
    """Otherwise it is left to Python: SIGINT is a KeyboardInterrupt, others end the process."""
    path = tmp_path / "out.jsonl"
    arguments = [sys.executable, "-c", PROGRAM, str(path), how]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        becomes(lambda: path.exists() and path.stat().st_size > 0)
        process.send_signal(number)
        said, complaint = process.communicate(timeout=HANG)
    if how == "left":
        assert process.returncode == -number
        assert ("KeyboardInterrupt" in complaint) == (number is signal.SIGINT)
        return
    assert process.returncode == 0, complaint
    frames = len(path.read_text().splitlines())
    assert said == f"{frames} {frames} 0 0\n"


async def test_only_the_main_thread_can_handle_signals() -> None:
    pipe = Pipeline(config(source=synthetic(frames=1)))
    with pytest.raises(ClosedError, match="main thread"):
        await asyncio.to_thread(pipe.run, handle_signals=True)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
def test_eager_tasks() -> None:
    async def main() -> None:
        factory: Any = getattr(asyncio, "eager_task_factory")  # noqa: B009
        asyncio.get_running_loop().set_task_factory(factory)
        async with asyncio.timeout(HANG), Pipeline(config(source=synthetic(frames=20))) as pipe:
            assert [result.sequence async for result in pipe] == list(range(20))
        async with asyncio.timeout(HANG), Pipeline(config(source=synthetic(frames=20))) as pipe:
            await pipe.wait()
        assert pipe.stats().results == 20

    asyncio.run(main())


def test_debug_mode_complains_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        asyncio.get_running_loop().slow_callback_duration = 10
        async with Pipeline(config(source=synthetic(frames=20))) as pipe:
            async for result in pipe:
                if result.sequence == 10:
                    break
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main(), debug=True)
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
