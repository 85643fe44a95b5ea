"""200 random lives of a pipeline, with faults in every part, stopped in every way at any moment.

Each is stopped in time, accounts for every frame, and leaves nothing behind but what was stuck on
purpose; and that, too, is given back once it is let go.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pipeline import Executor, Pipeline, PipelineError, Result, SinkError, SourceError
from pipeline.contracts import StreamInfo
from pipeline.errors import FormatChangedError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.sources import SourceSettings
from tests.servers import MjpegServer
from tests.usage import resources

SEQUENCES, AT_ONCE = 200, 10  # several at once, as most of their time is waiting for the stuck
MARGIN = 3.5  # seconds that closing may take when parts are stuck
HANG = 60.0
SIZE = FrameFormat(64, 48)


# What a life is made of.


@dataclass(frozen=True)
class Link:
    """One connection of a camera: how it opens, how many frames come, and what then."""

    opening: Literal["opens", "fails", "hangs", "deaf"]
    frames: int
    then: Literal["ends", "fails", "hangs", "deaf", "resizes"]


@dataclass(frozen=True)
class CameraPlan:
    """``links`` follow one another; the last one goes on without limit."""

    kind: Literal["file", "paced", "scripted", "server"]
    links: tuple[Link, ...]
    overflow: Literal["block", "latest", "drop_newest"]
    at_start: Literal["wait", "fail"]
    attempts: int | None

    @property
    def deaf(self) -> bool:
        """Whether it has calls that nothing but the test ends."""
        return self.kind == "scripted" and any("deaf" in (x.opening, x.then) for x in self.links)


@dataclass(frozen=True)
class SinkPlan:
    """``trouble`` comes with the write after ``after``, if it is one of writing."""

    trouble: Literal["none", "slow", "stuck open", "stuck", "stuck close", "fails open", "fails"]
    after: int
    on_error: Literal["stop", "retry", "disable"]
    overflow: Literal["block", "drop_newest"]


@dataclass(frozen=True)
class Plan:
    """A whole life."""

    cameras: tuple[CameraPlan, ...]
    sinks: tuple[SinkPlan, ...]
    contexts: int
    depth: int
    latency_ms: float
    fail_runs: tuple[int, ...]
    hang_runs: tuple[int, ...]
    max_failures: int
    consumer: Literal["sinks", "program", "program that holds views", "nobody"]
    changes: tuple[tuple[Literal["add", "remove", "again"], int, CameraPlan], ...]
    moment: Literal["before", "opening", "running", "end"]
    turns: int
    results: int
    seconds: float
    stop: Literal["drain", "cancel", "close", "cancelled", "raises"]
    drain_s: float


def one_of(**weights: int) -> st.SearchStrategy[Any]:
    """One of the names, each as often as its weight."""
    names = [[name.replace("_", " ")] * weight for name, weight in weights.items()]
    return st.sampled_from([*itertools.chain(*names)])


LINKS = st.builds(
    Link,
    opening=one_of(opens=15, fails=1, hangs=1, deaf=1),
    frames=st.sampled_from((20, 60, 5, 1, 0)),
    then=one_of(ends=2, fails=2, hangs=1, deaf=1, resizes=2),
)
CAMERAS = st.builds(
    CameraPlan,
    kind=one_of(scripted=4, file=2, paced=2, server=1),
    links=st.lists(LINKS, min_size=1, max_size=3).map(tuple),
    overflow=one_of(block=1, latest=1, drop_newest=1).map(lambda name: name.replace(" ", "_")),
    at_start=one_of(wait=1, fail=1),
    attempts=st.sampled_from((None, None, None, 1)),
)
SINKS = st.builds(
    SinkPlan,
    trouble=one_of(none=4, slow=1, stuck=2, stuck_close=2, fails=2, stuck_open=1, fails_open=1),
    after=st.sampled_from((3, 20, 0)),
    on_error=one_of(stop=1, retry=2, disable=2),
    overflow=one_of(block=1, drop_newest=1).map(lambda name: name.replace(" ", "_")),
)
RUNS = st.lists(st.integers(1, 40), max_size=3).map(tuple)
PLANS = st.builds(
    Plan,
    cameras=st.lists(CAMERAS, min_size=1, max_size=3).map(tuple),
    sinks=st.lists(SINKS, max_size=2).map(tuple),
    contexts=st.integers(1, 2),
    depth=st.integers(2, 4),
    latency_ms=st.sampled_from((0.5, 2.0, 8.0)),
    fail_runs=RUNS,
    hang_runs=st.one_of(st.just(()), st.just(()), RUNS),
    max_failures=st.integers(1, 3),
    consumer=one_of(sinks=4, program=4, program_that_holds_views=2, nobody=1),
    changes=st.lists(
        st.tuples(one_of(add=2, remove=1, again=2), st.integers(0, 2), CAMERAS), max_size=2
    ).map(tuple),
    moment=one_of(running=8, opening=2, end=2, before=1),
    turns=st.integers(0, 60),
    results=st.sampled_from((10, 40, 1, 80, 3)),
    seconds=st.sampled_from((0.6, 1.0, 0.1, 0.3)),
    stop=one_of(drain=3, cancel=2, close=2, cancelled=2, raises=2),
    drain_s=st.sampled_from((0.0, 0.2, 0.6)),
)


class Machine:
    """How long, in all, this process was not given the processor when it was its turn."""

    late = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            due = time.monotonic() + 0.02
            await asyncio.sleep(0.02)
            self.late += max(0.0, time.monotonic() - due)


class World:
    """The parts of one life that the test made; ``free`` lets go of those that are stuck."""

    def __init__(self, number: int, plan: Plan, server: str, machine: Machine) -> None:
        self.number, self.plan, self.server, self.machine = number, plan, server, machine
        self.free = threading.Event()
        self.boom = asyncio.Event()
        self.entered = False
        self.held: list[Any] = []
        self.results = 0
        self.links: dict[str, Iterator[Link]] = {}

    def source(self, name: str, camera: CameraPlan) -> dict[str, Any]:
        """The settings of a camera."""
        self.links[name] = itertools.chain(camera.links, itertools.repeat(camera.links[-1]))
        uris = {
            "file": "synthetic:?width=64&height=48&frames=40",
            "paced": "synthetic:?width=64&height=48&fps=100",
            "server": self.server,
        }
        scripted = {
            "kind": f"{__name__}:scripted_reader",
            "options": {"world": self.number, "name": name},
        }
        return {
            **(scripted if camera.kind == "scripted" else {"uri": uris[camera.kind]}),
            "overflow": camera.overflow,
            "at_start": camera.at_start,
            "open_timeout_s": 0.3 if camera.kind == "scripted" else 5,
            "read_timeout_s": 0.2 if camera.kind == "scripted" else 5,
            "reconnect": {"initial_s": 0.01, "max_s": 0.05, "attempts": camera.attempts},
        }

    def config(self) -> dict[str, Any]:
        """The configuration of the pipeline."""
        plan = self.plan
        return {
            "cameras": {f"c{i}": self.source(f"c{i}", c) for i, c in enumerate(plan.cameras)},
            "model": {
                "engine": "simulated",
                "contexts": plan.contexts,
                "input_shape": [1, 48, 64, 3],
                "run_timeout_s": 0.2,
                "max_failures": plan.max_failures,
                "reopen_attempts": 2,
                "options": {
                    "latency_ms": plan.latency_ms,
                    "fail_runs": list(plan.fail_runs),
                    "hang_runs": list(plan.hang_runs),
                    "hang_seconds": 0.7,
                },
            },
            "ring": {"depth": plan.depth},
            "sinks": [
                {
                    "kind": f"{__name__}:scripted_sink",
                    "options": {"world": self.number, "index": i},
                    "on_error": sink.on_error,
                    "overflow": sink.overflow,
                }
                for i, sink in enumerate(plan.sinks)
            ],
            "drain_s": plan.drain_s,
        }

    def may_be_left(self) -> set[str]:
        """Names of the threads that are stuck on purpose."""
        plan = self.plan
        names = {f"capture-c{i}" for i, camera in enumerate(plan.cameras) if camera.deaf}
        names |= {
            f"capture-{'c0' if what == 'again' else f'x{i}'}"
            for what, i, camera in plan.changes
            if camera.deaf
        }
        names |= {
            f"sink-{__name__}:scripted_sink-{i}"
            for i, sink in enumerate(plan.sinks)
            if sink.trouble.startswith("stuck")
        }
        return names | ({"executor"} if plan.hang_runs else set())


class ScriptedReader:
    """One connection of a scripted camera."""

    live = True

    def __init__(self, world: World, link: Link) -> None:
        self._world, self._link = world, link
        self._stop = threading.Event()
        self._grabbed = 0

    def _hang(self, deaf: bool) -> None:
        (self._world.free if deaf else self._stop).wait()

    def open(self) -> FrameFormat:
        if self._link.opening in ("hangs", "deaf"):
            self._hang(self._link.opening == "deaf")
        if self._link.opening != "opens":
            raise SourceError("scripted: no connection")
        return SIZE

    def grab(self) -> int | None:
        # As fast as a fast camera; without it the readers would leave nothing for the others.
        if self._stop.wait(0.002) or self._world.free.is_set():
            return None
        self._grabbed += 1
        if self._grabbed > self._link.frames:
            if self._link.then == "ends":
                return None
            if self._link.then == "fails":
                raise SourceError("scripted: cable cut")
            if self._link.then in ("hangs", "deaf"):
                self._hang(self._link.then == "deaf")
                return None
        return time.monotonic_ns()

    def retrieve(self, buffer: Image) -> None:
        larger = self._grabbed > self._link.frames
        size = FrameFormat(96, 48) if larger else SIZE
        if buffer.shape != (size.height, size.width, 3):
            raise FormatChangedError("scripted: another size", size)
        buffer[...] = self._grabbed % 256

    def interrupt(self) -> None:
        self._stop.set()

    def close(self) -> None:
        self._stop.set()


class ScriptedSink:
    """A sink that is slow, stuck or failing as planned."""

    def __init__(self, world: World, plan: SinkPlan) -> None:
        self._world, self._plan = world, plan
        self._written = 0

    def open(self, stream: StreamInfo) -> None:
        if self._plan.trouble == "stuck open":
            self._world.free.wait()
        if self._plan.trouble == "fails open":
            raise SinkError("scripted: cannot be opened")

    def begin(self) -> None:
        pass

    def write(self, result: Result) -> None:
        self._written += 1
        if self._plan.trouble == "slow":
            self._world.free.wait(0.01)
        if self._written > self._plan.after:
            if self._plan.trouble == "stuck":
                self._world.free.wait()
            if self._plan.trouble == "fails":
                raise SinkError("scripted: disk full")

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        if self._plan.trouble == "stuck close":
            self._world.free.wait()


WORLDS: dict[int, World] = {}


def scripted_reader(world: int, name: str) -> ScriptedReader:
    """The next connection of a scripted camera."""
    return ScriptedReader(WORLDS[world], next(WORLDS[world].links[name]))


def scripted_sink(world: int, index: int) -> ScriptedSink:
    """A sink as planned."""
    return ScriptedSink(WORLDS[world], WORLDS[world].plan.sinks[index])


@pytest.fixture
def worlds() -> Iterator[dict[int, World]]:
    """Worlds by number, whose scripted cameras and sinks pipelines find."""
    yield WORLDS
    WORLDS.clear()


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> list[Executor]:
    """All executors that were opened, to see that their memory is given back."""
    made: list[Executor] = []
    init = Executor.__init__

    def recorded(self: Executor, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(Executor, "__init__", recorded)
    return made


# One life.


class BodyError(Exception):
    """What the body of ``async with`` raises."""


async def consume(pipe: Pipeline, world: World) -> None:
    """What the program does with the pipeline, until it ends."""
    if world.plan.consumer == "sinks":
        await pipe.wait()
    elif world.plan.consumer == "nobody":
        await asyncio.Event().wait()
    else:
        async for result in pipe:
            if world.plan.consumer != "program" and len(world.held) < 3:
                world.held += [result.image, result.outputs[0].array]


async def program(pipe: Pipeline, world: World) -> None:
    """A program that uses the pipeline, and perhaps fails while it does."""
    async with pipe:
        world.entered = True
        if world.plan.stop != "raises":
            await consume(pipe, world)
            return
        consuming = asyncio.ensure_future(consume(pipe, world))
        failing = asyncio.ensure_future(world.boom.wait())
        try:
            await asyncio.wait({consuming, failing}, return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                raise BodyError
            await consuming
        finally:
            consuming.cancel()
            failing.cancel()
            await asyncio.gather(consuming, failing, return_exceptions=True)


async def change(pipe: Pipeline, world: World, running: asyncio.Task[None]) -> None:
    """Add and remove cameras, once it is open."""
    await within(1.5, lambda: world.entered or running.done())
    for what, number, camera in world.plan.changes:
        with contextlib.suppress(PipelineError):
            if what in ("remove", "again"):
                await pipe.remove_camera(f"c{number}" if what == "remove" else "c0")
            if what in ("add", "again"):
                name = f"x{number}" if what == "add" else "c0"
                source = SourceSettings.model_validate(world.source(name, camera) | {"name": name})
                await pipe.add_camera(name, source)


async def moment(pipe: Pipeline, world: World, running: asyncio.Task[None]) -> None:
    """Let it live until it is time."""
    plan = world.plan
    if plan.moment == "opening":
        for _ in range(plan.turns):
            await asyncio.sleep(0)
        return
    # What is waited for may never come, for example where a camera is stuck.
    await within(1.5, lambda: world.entered or running.done())
    if plan.moment == "end":
        await within(1.5, running.done)
    else:
        done = lambda: running.done() or pipe.stats().results > plan.results  # noqa: E731
        await within(plan.seconds, done)


async def stop(pipe: Pipeline, world: World, running: asyncio.Task[None] | None) -> None:
    """Stop it in the planned way and wait until it stopped."""
    how = world.plan.stop
    if how == "raises" and world.entered:
        world.boom.set()
    elif how in ("cancelled", "raises") and running is not None:
        running.cancel()
    elif how == "drain":
        await pipe.drain(world.plan.drain_s)
    elif how == "cancel":
        pipe.cancel()
        await pipe.close()
    else:
        await pipe.close()
    if running is not None:
        if world.plan.consumer == "nobody" and how not in ("cancelled", "raises"):
            running.cancel()  # the pipeline has ended, but this program does not look at it
        await asyncio.wait({running})


async def live(world: World) -> None:
    """One life from beginning to end, and what must hold after it."""
    plan = world.plan
    pipe = Pipeline(world.config())
    running: asyncio.Task[None] | None = None
    changing: asyncio.Future[None] | None = None
    if plan.moment != "before":
        running = asyncio.create_task(program(pipe, world), name="program")
        await asyncio.sleep(0)  # what is stopped before it began to open would open later
        if plan.changes and plan.moment != "opening":
            changing = asyncio.ensure_future(change(pipe, world, running))
        await moment(pipe, world, running)
    began, late = time.monotonic(), world.machine.late
    async with asyncio.timeout(HANG):
        await stop(pipe, world, running)
        took = time.monotonic() - began
        late = world.machine.late - late
        if changing is not None:
            await changing
    allowed = MARGIN + late + (plan.drain_s if plan.stop == "drain" else 0)
    assert took < allowed, f"stopping took {took:.2f} s, {late:.2f} of them as others were at work"
    if running is not None:
        check_end(world, running)
    stats = pipe.stats()
    world.results = stats.results
    assert stats.frames == stats.results + sum(stats.dropped.values()), stats
    assert {part.name for part in pipe.abandoned} <= world.may_be_left()
    await check_all_comes_back(pipe, world)


def check_end(world: World, running: asyncio.Task[None]) -> None:
    """It ended with an error of ours or by the program's own doing."""
    if running.cancelled():
        assert world.plan.stop in ("cancelled", "raises") or world.plan.consumer == "nobody"
        return
    error = running.exception()
    if not (error is None or isinstance(error, PipelineError | BodyError)):
        raise error


async def check_all_comes_back(pipe: Pipeline, world: World) -> None:
    """Once the stuck parts are let go and views dropped, slots and frame buffers are free."""
    world.free.set()
    world.held.clear()
    parts = pipe._parts
    if parts is None:
        return

    def free() -> bool:
        gc.collect()  # an error's traceback may hold views
        pools = [c.pool for c in parts.captures.values() if c.pool is not None]
        slots = set(pipe.stats().slots) <= {"free"}
        return slots and all(pool.free == len(pool) for pool in pools)

    await eventually(free, lambda: f"{pipe.stats().slots}")


async def within(seconds: float, condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:  # noqa: ASYNC110 - it may never come
        await asyncio.sleep(0.005)


async def eventually(condition: Callable[[], bool], told: Callable[[], str]) -> None:
    limit = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < limit, told()
        await asyncio.sleep(0.01)


async def lives(worlds: list[World], machine: Machine, executors: list[Executor]) -> None:
    """Several at once; all that is asked of the whole process."""
    watching = asyncio.ensure_future(machine.watch())
    ends = await asyncio.gather(*map(live, worlds), return_exceptions=True)
    watching.cancel()
    await asyncio.wait({watching})
    for world, end in zip(worlds, ends, strict=True):
        world.free.set()
        if end is not None:
            raise AssertionError(f"{end!r}\nin {world.plan}") from end
    await eventually(
        lambda: not any(executor.counters().live_blocks for executor in executors),
        lambda: f"driver memory is left: {[e.counters().live_blocks for e in executors]}",
    )
    executors.clear()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not others, others


def check_nothing_is_left(before: Any) -> None:
    """No more threads and descriptors than before."""
    limit = time.monotonic() + HANG
    while leaked := resources() - before:
        assert time.monotonic() < limit, leaked
        threading.Event().wait(0.01)


@pytest.mark.usefixtures("_warm")
def test_200_random_lives(worlds: dict[int, World], executors: list[Executor]) -> None:
    numbers = itertools.count()
    with MjpegServer(width=64, height=48, fps=60, stop_after=15) as server:
        before = resources()

        # Without shrinking: what depends on the moment would be shrunk to something else.
        @settings(
            max_examples=SEQUENCES // AT_ONCE,
            derandomize=True,
            database=None,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(PLANS, min_size=AT_ONCE, max_size=AT_ONCE))
        def some(plans: list[Plan]) -> None:
            group, machine = [], Machine()

            async def main() -> None:
                for plan in plans:
                    number = next(numbers)
                    worlds[number] = World(number, plan, server.url, machine)
                    group.append(worlds[number])
                await lives(group, machine, executors)

            asyncio.run(main())
            check_nothing_is_left(before)

        some()
    assert len(worlds) >= SEQUENCES
    # Many were stopped early or had no camera that works, but not so many that it means nothing.
    assert sum(world.results > 0 for world in worlds.values()) > SEQUENCES // 3
