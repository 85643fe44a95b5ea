"""Stopping is legal and bounded in every state, and leaves nothing behind that is not named."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pipeline.machine.assembly
from pipeline import ClosedError, Pipeline, Result, SinkError
from pipeline.contracts import StreamInfo
from pipeline.memory.frame import FrameFormat, Image

if TYPE_CHECKING:
    from tests.conftest import Until

Stop = Callable[[Pipeline], Awaitable[None]]

HANG = 60.0  # seconds after which something is called a hang
DEPTH = 4

pytestmark = [pytest.mark.usefixtures("no_leak")]


def config(**changes: Any) -> dict[str, Any]:
    model = {
        "engine": "simulated",
        "contexts": 2,
        "input_shape": [1, 48, 64, 3],
        "options": {"latency_ms": 1},
    }
    return {
        "source": {"uri": "synthetic:", "width": 64, "height": 48},
        "model": model | changes.pop("model", {}),
        "ring": {"depth": DEPTH},
        **changes,
    }


async def _drain(pipe: Pipeline) -> None:
    await pipe.drain(1.0)


async def _cancel(pipe: Pipeline) -> None:
    pipe.cancel()
    await pipe.close()


@pytest.fixture(params=[_drain, _cancel], ids=["drain", "cancel"])
def stop(request: pytest.FixtureRequest) -> Stop:
    """Stop in one of both ways, and once more."""

    async def twice(pipe: Pipeline) -> None:
        async with asyncio.timeout(HANG):
            await request.param(pipe)
            before = pipe.stats()
            await request.param(pipe)
        after = pipe.stats()
        assert (after.frames, after.results) == (before.frames, before.results)

    return twice


def check(pipe: Pipeline, *abandoned: str) -> None:
    """Every frame and every slot is accounted for, and only these threads were abandoned."""
    stats = pipe.stats()
    assert [part.name for part in pipe.abandoned] == list(abandoned)
    assert stats.frames == stats.results + sum(stats.dropped.values())
    assert stats.driver_allocations[0] == stats.driver_allocations[1]
    if "executor" not in abandoned:
        assert set(stats.slots) <= {"free"}
    captures = pipe._parts.captures.values() if pipe._parts is not None and stats.slots else ()
    for capture in captures:
        # The buffer that a stuck reader was given stays with it.
        held = 1 if capture.name in abandoned else 0
        assert capture.pool is None or capture.pool.free >= len(capture.pool) - held


class Camera:
    """A reader whose calls can be made to hang; ``deaf`` ones do not even hear ``interrupt``."""

    live = True

    def __init__(self, *, hangs_in: str, deaf: bool = False, after: int = 0) -> None:
        self.reached = threading.Event()
        self.free = threading.Event()
        self.closed = 0
        self._hangs_in, self._deaf, self._after = hangs_in, deaf, after
        self._grabbed = 0

    def _maybe_hang(self, where: str) -> None:
        if where == self._hangs_in and self._grabbed >= self._after:
            self.reached.set()
            self.free.wait()

    def open(self) -> FrameFormat:
        self._maybe_hang("open")
        return FrameFormat(64, 48)

    def grab(self) -> int | None:
        self._maybe_hang("grab")
        if self.free.is_set():
            return None
        self._grabbed += 1
        return 1

    def retrieve(self, buffer: Image) -> None:
        buffer[...] = 0

    def interrupt(self) -> None:
        if not self._deaf:
            self.free.set()

    def close(self) -> None:
        self.closed += 1


class StuckSink:
    """A sink that hangs in one of its calls until it is freed."""

    def __init__(self, hangs_in: str) -> None:
        self.reached = threading.Event()
        self.free = threading.Event()
        self.closed = 0
        self.written: list[int] = []
        self._hangs_in = hangs_in

    def _maybe_hang(self, where: str) -> None:
        if where == self._hangs_in:
            self.reached.set()
            self.free.wait()

    def open(self, stream: StreamInfo) -> None:
        self._maybe_hang("open")

    def write(self, result: Result) -> None:
        self.written.append(result.sequence)
        self._maybe_hang("write")

    def close(self) -> None:
        self._maybe_hang("close")
        self.closed += 1


def with_camera(**how: Any) -> tuple[Pipeline, Camera]:
    """A pipeline with such a camera."""
    camera = Camera(**how)
    return Pipeline(config(), frames=camera), camera


def with_sink(hangs_in: str) -> tuple[Pipeline, StuckSink]:
    """A pipeline with such a sink."""
    sink = StuckSink(hangs_in)
    return Pipeline(config(), sinks=[sink]), sink


def in_background(awaitable: Awaitable[Any]) -> asyncio.Future[Any]:
    return asyncio.ensure_future(awaitable)


def calls_under_way() -> set[str]:
    """Qualified names of all functions that some thread is in."""
    names = set()
    for top in sys._current_frames().values():
        frame: FrameType | None = top
        while frame is not None:
            names.add(frame.f_code.co_qualname)
            frame = frame.f_back
    return names


async def ended(task: asyncio.Future[Any]) -> BaseException | None:
    """How a background task ended."""
    async with asyncio.timeout(HANG):
        await asyncio.wait({task})
    return asyncio.CancelledError() if task.cancelled() else task.exception()


# Before anything flows.


async def test_before_it_is_open(stop: Stop) -> None:
    pipe = Pipeline(config())
    await stop(pipe)
    assert pipe.stats().frames == 0
    check(pipe)


async def never() -> AsyncIterator[Image]:
    await asyncio.Event().wait()
    yield np.zeros((48, 64, 3), np.uint8)


@pytest.mark.both_loops
async def test_while_the_first_image_never_comes(stop: Stop, until: Until) -> None:
    asked, finished = asyncio.Event(), asyncio.Event()

    async def frames() -> AsyncIterator[Image]:
        try:
            asked.set()
            await asyncio.Event().wait()
            yield np.zeros((48, 64, 3), np.uint8)
        finally:
            finished.set()

    pipe = Pipeline(config(), frames=frames())
    opening = in_background(pipe.open())
    await until(asked.is_set)
    await stop(pipe)
    assert not isinstance(await ended(opening), asyncio.CancelledError)
    assert finished.is_set()
    check(pipe)
    await has_no_results(pipe)


async def has_no_results(pipe: Pipeline) -> None:
    """A pipeline that was stopped before it ran has none; one that was closed says so."""
    if pipe._closed:
        with pytest.raises(ClosedError, match="closed"):
            aiter(pipe)
    else:
        assert [result async for result in pipe] == []


@pytest.mark.parametrize("wait_first", [True, False], ids=["later", "at once"])
async def test_entering_can_be_cancelled(until: Until, wait_first: bool) -> None:
    asked = asyncio.Event()

    async def frames() -> AsyncIterator[Image]:
        asked.set()
        async for each in never():
            yield each

    pipe = Pipeline(config(), frames=frames())

    async def use() -> None:
        async with pipe:
            raise AssertionError("it never opens")

    task = in_background(use())
    if wait_first:
        await until(asked.is_set)
    else:
        await asyncio.sleep(0)
    task.cancel()
    assert isinstance(await ended(task), asyncio.CancelledError)
    check(pipe)


async def test_while_a_camera_is_deaf_and_never_connects(stop: Stop, until: Until) -> None:
    pipe, camera = with_camera(hangs_in="open", deaf=True)
    opening = in_background(pipe.open())
    await until(camera.reached.is_set)
    await stop(pipe)
    await ended(opening)
    check(pipe, "capture-camera")
    assert camera.closed == 0
    camera.free.set()  # it connects after all, and is closed by the thread that was abandoned
    await until(lambda: camera.closed == 1)


@pytest.mark.parametrize("number", range(6))
async def test_at_any_point_of_opening(stop: Stop, number: int) -> None:
    """Whatever is being opened is closed again: the model, the ring, a stage."""
    pipe = Pipeline(config(sinks=[{"kind": "console"}]))
    opening = in_background(pipe.open())
    for _ in range(2**number):
        await asyncio.sleep(0)
    await stop(pipe)
    await ended(opening)
    check(pipe)


@pytest.mark.parametrize("number", range(6))
async def test_who_is_stopped_while_it_opens_gets_no_results(stop: Stop, number: int) -> None:
    pipe = Pipeline(config())

    async def program() -> int:
        async with pipe:
            return len([result.sequence async for result in pipe])

    running = in_background(program())
    for _ in range(2**number):
        await asyncio.sleep(0)
    await stop(pipe)
    assert await ended(running) is None
    check(pipe)


async def test_while_the_model_is_being_loaded(
    stop: Stop, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling cannot be interrupted: it is waited for a while, then named and abandoned."""
    from pipeline.engines import simulated

    load, reached, free = simulated.open_engine, threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        reached.set()
        free.wait()
        return load(*arguments)

    monkeypatch.setattr(simulated, "open_engine", slowly)
    pipe = Pipeline(config())
    opening = in_background(pipe.open())
    await until(reached.is_set)
    await stop(pipe)
    await ended(opening)
    check(pipe, "open-engine")
    free.set()


async def test_open_but_not_started(stop: Stop) -> None:
    pipe = Pipeline(config())
    await pipe.open()
    assert pipe.stats().slots == {"free": DEPTH}
    await stop(pipe)
    check(pipe)
    await has_no_results(pipe)
    assert pipe.stats().results == 0


@pytest.mark.parametrize("deaf", [False, True], ids=["hears", "deaf"])
async def test_before_the_first_frame(stop: Stop, until: Until, deaf: bool) -> None:
    pipe, camera = with_camera(hangs_in="grab", deaf=deaf)
    await pipe.open()
    running = in_background(pipe.wait())
    await until(camera.reached.is_set)
    await stop(pipe)
    assert await ended(running) is None
    check(pipe, *(["capture-camera"] if deaf else []))
    assert pipe.stats().frames == 0
    camera.free.set()
    await until(lambda: camera.closed == 1)


# While it runs.


@pytest.mark.both_loops
@pytest.mark.parametrize("taker", ["sinks", "program"])
async def test_while_it_runs(stop: Stop, until: Until, taker: str) -> None:
    pipe = Pipeline(config())
    await pipe.open()
    taken: list[int] = []

    async def take() -> None:
        async for result in pipe:
            taken.append(result.sequence)

    running = in_background(pipe.wait() if taker == "sinks" else take())
    await until(lambda: pipe.stats().results >= 20)
    await stop(pipe)
    assert await ended(running) is None
    check(pipe)
    assert taken == sorted(set(taken))
    if taker == "program":
        # What was finished but not taken is told, too.
        assert len(taken) + pipe.stats().undelivered.get("program", 0) == pipe.stats().results


async def test_draining_loses_nothing(until: Until) -> None:
    pipe = Pipeline(config())
    await pipe.open()
    taken: list[int] = []

    async def take() -> None:
        async for result in pipe:
            taken.append(result.sequence)

    running = in_background(take())
    await until(lambda: pipe.stats().results >= 20)
    async with asyncio.timeout(HANG):
        await pipe.drain()
    assert await ended(running) is None
    stats = pipe.stats()
    assert stats.dropped == {}
    assert stats.undelivered == {}
    assert taken == list(range(stats.frames))
    check(pipe)


async def test_stop_inside_the_loop_lets_the_rest_come() -> None:
    pipe = Pipeline(config())
    taken: list[int] = []
    async with asyncio.timeout(HANG), pipe:
        async for result in pipe:
            taken.append(result.sequence)
            if result.sequence == 10:
                pipe.stop()
    stats = pipe.stats()
    assert len(taken) == stats.frames == stats.results > 10
    assert stats.dropped == {}
    check(pipe)


async def test_while_a_deaf_camera_is_stuck_in_a_read(stop: Stop, until: Until) -> None:
    pipe, camera = with_camera(hangs_in="grab", deaf=True, after=5)
    await pipe.open()
    running = in_background(pipe.wait())
    await until(lambda: camera.reached.is_set() and pipe.stats().frames == 5)
    await stop(pipe)
    assert await ended(running) is None
    check(pipe, "capture-camera")
    camera.free.set()
    await until(lambda: camera.closed == 1)


async def _drain_then_cancel(pipe: Pipeline) -> None:
    draining = in_background(pipe.drain(3600))
    await asyncio.sleep(0)
    assert not draining.done()
    pipe.cancel()
    assert await ended(draining) is None


async def test_while_the_engine_hangs(until: Until) -> None:
    """Drained, cancelled, and cancelled while it drains: side by side, as each takes its time."""
    hang = {"latency_ms": 1, "hang_runs": [3], "hang_seconds": 8}
    pipes = [Pipeline(config(model={"contexts": 1, "options": hang})) for _ in range(3)]
    running = []
    for pipe in pipes:
        await pipe.open()
        running.append(in_background(pipe.wait()))
    for pipe in pipes:
        # Results are in order, so nothing comes after the second one; every slot waits.
        await until(lambda p=pipe: p.stats().results == 2 and "free" not in p.stats().slots)  # type: ignore[misc]
    verbs = (_drain, _cancel, _drain_then_cancel)
    async with asyncio.timeout(HANG):
        await asyncio.gather(*(verb(pipe) for verb, pipe in zip(verbs, pipes, strict=True)))
    for pipe, task in zip(pipes, running, strict=True):
        assert await ended(task) is None
        check(pipe, "executor")
        assert pipe.stats().results == 2
    for pipe in pipes:  # the engine lets go, and everything comes back
        await until(lambda p=pipe: p.stats().slots == {"free": DEPTH})  # type: ignore[misc]


async def test_while_nobody_reads_the_pipe_of_a_sink(
    stop: Stop, until: Until, tmp_path: Path
) -> None:
    """Opening a named pipe waits for its reader, until it is told to stop."""
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    pipe = Pipeline(config(sinks=[{"kind": "jsonl", "path": str(fifo)}]))
    await pipe.open()
    running = in_background(pipe.wait())
    await until(lambda: "JsonlSink._await_reader" in calls_under_way())
    await stop(pipe)
    error = await ended(running)
    assert error is None or "nobody reads this pipe" in str(error)  # None: it was cancelled
    check(pipe)


async def test_while_a_sink_hangs_in_a_write(stop: Stop, until: Until) -> None:
    pipe, sink = with_sink("write")
    await pipe.open()
    running = in_background(pipe.wait())
    await until(sink.reached.is_set)
    await until(lambda: pipe.stats().slots.get("free", 0) == 0)  # it holds everything back
    await stop(pipe)
    assert await ended(running) is None
    check(pipe, "sink-StuckSink-0")
    assert sink.written == [0]
    assert sink.closed == 0
    sink.free.set()
    await until(lambda: sink.closed == 1)


async def test_while_a_sink_hangs_in_its_close(until: Until) -> None:
    pipe, sink = with_sink("close")
    await pipe.open()
    running = in_background(pipe.wait())
    await until(lambda: len(sink.written) >= 3)
    async with asyncio.timeout(HANG):
        await pipe.drain(0.5)
    assert await ended(running) is None
    check(pipe, "sink-StuckSink-0")
    stats = pipe.stats()
    assert sink.written == list(range(stats.results))
    sink.free.set()
    await until(lambda: sink.closed == 1)


async def test_while_the_program_takes_no_results(stop: Stop, until: Until) -> None:
    pipe = Pipeline(config())
    await pipe.open()
    results = aiter(pipe)
    result = await anext(results)
    # One waits, the next one cannot be handed over, and the ring fills up behind it.
    await until(lambda: pipe.stats().results == 3 and "free" not in pipe.stats().slots)
    assert await ended(in_background(stop(pipe))) is None
    with pytest.raises(ClosedError, match="given back"):
        _ = result.image
    with pytest.raises(StopAsyncIteration):
        await anext(results)
    check(pipe)


@pytest.mark.parametrize("what", ["image", "outputs"])
async def test_while_the_program_holds_a_view(stop: Stop, until: Until, what: str) -> None:
    """What is still looked at stays right, is no stuck thread, and is freed when it is not."""
    pipe = Pipeline(config())
    await pipe.open()
    result = await anext(aiter(pipe))
    view = result.image if what == "image" else result.outputs[0].array
    before = view.copy()
    await stop(pipe)
    np.testing.assert_array_equal(view, before)
    assert pipe.abandoned == []
    assert pipe.stats().frames == pipe.stats().results + sum(pipe.stats().dropped.values())
    del view
    await until(lambda: pipe.stats().slots == {"free": DEPTH})


# After the end.


async def test_after_the_end(stop: Stop) -> None:
    pipe = Pipeline(config(), max_frames=10)
    async with pipe:
        await pipe.wait()
        await stop(pipe)
    await stop(pipe)
    check(pipe)
    assert pipe.stats().results == 10
    with pytest.raises(ClosedError):
        await pipe.open()


async def test_after_an_error(stop: Stop) -> None:
    model = {"options": {"fail_runs": [4]}, "max_failures": 1, "reopen_attempts": 0}
    pipe = Pipeline(config(model=model))
    await pipe.open()
    with pytest.raises(pipeline.RunError, match="run 4 fails"):
        await pipe.wait()
    await stop(pipe)
    check(pipe)


# Through the command line. Signals while it runs and while the engine hangs: test_cli_stop.py.

# Lines of the JSONL file are longer than 1000 bytes.
ENDLESS = f"""\
source: {{uri: "synthetic:", width: 64, height: 48}}
model:
  engine: simulated
  input_shape: [1, 48, 64, 3]
  options: {{latency_ms: 2, outputs: [{{name: {"n" * 1000}, shape: [1]}}]}}
sinks: [{{kind: console}}, {{kind: jsonl, path: pipe}}]
drain_s: 1
"""
SIGNALS = [[signal.SIGINT], [signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]]


@contextlib.contextmanager
def launched(folder: Path, text: str) -> Iterator[subprocess.Popen[str]]:
    """The command line with this configuration; killed at the end, should it still live."""
    (folder / "camera.yaml").write_text(text)
    root = str(Path(pipeline.__file__).parents[1])
    paths = filter(None, [root, os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "camera.yaml"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[str], signals: list[signal.Signals], code: int) -> str:
    """Send the signals, the second once the first was heard; what was said on stderr.

    It ends with ``code``, that of the part which hangs, or with 1 when it was cancelled.
    """
    assert process.stderr is not None
    said = ""
    for number, answer in zip(signals, ("stopping", "cancelling"), strict=False):
        process.send_signal(number)
        while answer not in said:
            line = process.stderr.readline()
            assert line, f"it ended without {answer!r}: {said}"
            said += line
    _, rest = process.communicate(timeout=HANG)
    assert process.returncode == (code if len(signals) == 1 else 1), said + rest
    assert "Traceback" not in said + rest
    return said + rest


@pytest.mark.parametrize("signals", SIGNALS, ids=lambda signals: "+".join(s.name for s in signals))
def test_the_command_line_while_a_sink_is_stuck(
    tmp_path: Path, signals: list[signal.Signals]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "pipe", "r+b", buffering=0) as reader:  # and never reads
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        with launched(tmp_path, ENDLESS) as process:
            assert process.stdout is not None
            for number in range(5):  # more than the pipe holds
                assert process.stdout.readline().split()[:2] == ["camera", str(number)]
            said = finish(process, signals, SinkError.exit_code)
    assert "abandoned: sink-jsonl-1" in said


@pytest.mark.parametrize("signals", SIGNALS, ids=lambda signals: "+".join(s.name for s in signals))
def test_the_command_line_while_a_camera_never_answers(
    tmp_path: Path, signals: list[signal.Signals]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/stream"
        server.settimeout(HANG)
        with launched(tmp_path, ENDLESS.replace("synthetic:", url)) as process:
            connection, _ = server.accept()  # it is connected, and gets no answer
            with connection:
                said = finish(process, signals, 0)
    assert "abandoned" not in said
