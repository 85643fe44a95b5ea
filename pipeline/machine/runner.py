"""The machine: runs the parts as tasks of one group and stops them in order."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import AsyncIterable, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from pipeline.clock import Clock, MonotonicClock
from pipeline.config.settings import Config
from pipeline.contracts import Reader
from pipeline.engines.autotune_choice import Choice
from pipeline.engines.executor import Executor
from pipeline.errors import Abandoned, ClosedError, ConfigError, PipelineError, at, unexpected
from pipeline.flow.events import EventStream
from pipeline.flow.loop_lag import LoopLag
from pipeline.flow.outlet import Outlet
from pipeline.flow.result_iterator import Receiver, ResultIterator
from pipeline.flow.stage import Stage
from pipeline.flow.stats import KEPT, Recorder, Stats
from pipeline.machine import wiring
from pipeline.machine.assembly import Assembly
from pipeline.machine.autotune import tune
from pipeline.machine.cameras import Cameras
from pipeline.machine.closing import close_in_time, wait_through
from pipeline.machine.first_error import Failure
from pipeline.machine.own_parts import InUse, import_in_thread, names_own, with_objects
from pipeline.memory.ring import Ring
from pipeline.sources import SourceSettings
from pipeline.worker import call_in_thread

__all__ = ["Health", "Runner"]

T = TypeVar("T", bound="Runner")


class Health(NamedTuple):
    """Health of a pipeline: ``ok``, or the problems."""

    ok: bool
    problems: tuple[str, ...]


_LATELY = 5.0  # seconds for which a sink that missed a result counts as too slow


class Runner:
    """A pipeline in one event loop: ``async with``, then ``async for`` or ``wait``.

    Frames begin to flow with ``async for`` or ``wait``. One task owns all others; it opens the
    parts, runs the stages as one group and closes everything in order, whatever happens.
    ``abandoned``: the parts that hung and were given up. Objects take the places of parts: see
    ``Pipeline``.
    """

    def __init__(
        self,
        config: Config,
        *,
        frames: AsyncIterable[Any] | Reader | None = None,
        live: bool = False,
        max_frames: int | None = None,
        clock: Clock | None = None,
        sources: Mapping[str, Any] | None = None,
        postprocess: Any = None,
        sinks: Sequence[Any] = (),
    ) -> None:
        whole = isinstance(max_frames, int) and not isinstance(max_frames, bool)
        if max_frames is not None and (not whole or max_frames < 1):
            raise ConfigError(f"max_frames: needs a whole number above 0, got {max_frames!r}")
        given = dict(sources or {})
        self.config = with_objects(config, given, frames, postprocess, sinks, live=live)
        own = (*given.values(), frames, postprocess, *sinks)
        self._in_use = InUse([each for each in own if each is not None])
        self.abandoned: list[Abandoned] = []
        self._max_frames = max_frames
        self._clock: Clock = clock or MonotonicClock()
        self._wiring = wiring.build(self.config)
        self.recorder = Recorder(self._clock.now)
        self._parts: Assembly | None = None
        self._choice: Choice | None = None
        self._cameras: Cameras | None = None
        self._failure = Failure()
        self._stopping = False
        self._cancelled = False
        self._closed = False
        self._entered = False
        self._begun = False
        self._torn = False  # its task was cancelled, but not by this pipeline's own methods
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._receiver = Receiver(
            wiring.PROGRAM_QUEUE, self._wiring.program_overflow, self._lost, self._left
        )
        self._waiters = 0
        self._only_sinks = False

    def __del__(self) -> None:
        task: asyncio.Task[None] | None = getattr(self, "_task", None)  # none in a failed __init__
        if task is not None and not self._closed and (self._torn or not task.done()):
            warnings.warn("unclosed pipeline", ResourceWarning, stacklevel=2, source=self)

    # Opening and the life of the owning task.

    async def open(self) -> None:
        """Open sources, model and sinks. Raises what the first of them that fails raises.

        After ``stop`` nothing is opened, and there are no results.
        """
        if self._task is not None:
            raise ClosedError("pipeline: it was opened already; make another one")
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._go = asyncio.Event()
        if not (self.config.model.measured or names_own(self.config)):
            self._make_parts(self.config)
        self._in_use.take()
        self._task = self._loop.create_task(self._live_and_die(), name="pipeline")
        self._task.add_done_callback(lambda _: self._in_use.give_back())
        waiting: set[asyncio.Future[None]] = {self._opened, self._task}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await wait_through(self._task)
            raise
        if self._task.done():
            self._failure.raise_copy()

    async def __aenter__(self: T) -> T:
        await self.open()
        self._entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered = False
        try:
            await self.close()
        except asyncio.CancelledError:
            if not isinstance(error, asyncio.CancelledError):
                raise  # else it goes on with the one that came first
        self._failure.raise_at_exit(error)

    async def close(self) -> None:
        """Cancel what still runs and wait until everything is closed, which takes at most 2 s.

        It is waited for through every cancel; the first one is raised afterwards.
        """
        self._check_loop()
        self._closed = True
        self.cancel()
        if self._task is not None:
            await wait_through(self._task)

    aclose = close  # for contextlib.aclosing

    def _make_parts(self, config: Config, engine: Executor | None = None) -> Assembly:
        """All parts, not yet open but for the engine, where that is open already."""
        self._wiring = wiring.build(config)
        self._parts = parts = Assembly(
            config, self._wiring, self._clock, self.recorder, self._max_frames, engine
        )
        for camera in self._wiring.cameras:
            parts.add_camera(camera, config.sources[camera.name])
        self._cameras = Cameras(config, parts, self._failure.record, self.abandoned)
        return parts

    def _chosen(self, ring: Ring | None) -> Choice | None:
        """Choice of the ``auto`` settings, with the depth that fits in memory."""
        if self._choice is None or ring is None:
            return self._choice
        return self._choice._replace(depth=ring.depth)

    async def _prepared(self) -> Assembly:
        """The parts, after what blocks: importing classes, measuring what suits the model."""
        self.config = await import_in_thread(self.config)
        if not self.config.model.measured:
            return self._make_parts(self.config)
        tuned = await tune(self.config, self.abandoned)
        self._choice = tuned.choice
        return self._make_parts(tuned.config, tuned.executor)

    async def _live_and_die(self) -> None:
        self._begun = True
        try:
            # Where tasks are eager, this one has begun before `open` knows it.
            await asyncio.sleep(0)
            if not self._stopping:
                await self._run_parts(self._parts or await self._prepared())
        except* asyncio.CancelledError:
            self._torn = not self._cancelled
        except* BaseException as errors:
            self._failure.record(errors)
        finally:
            await self._close_parts()

    async def _run_parts(self, parts: Assembly) -> None:
        assert self._cameras is not None
        lag = LoopLag(asyncio.get_running_loop(), self.recorder.loop_lag)
        try:
            await parts.open()
            self._opened.set_result(None)
            await self._go.wait()
            lag.start()
            async with asyncio.TaskGroup() as group:
                for stage in (parts.dispatch, parts.finish, *parts.sinks):
                    group.create_task(self._guard(stage), name=stage.name)
                self._cameras.start(group)
            await self._receiver.consumed()  # its last results still borrow slots and frames
        finally:
            lag.stop()
            self._cameras.end()

    async def _guard(self, stage: Stage) -> None:
        try:
            try:
                await stage.run()
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                raise unexpected(PipelineError, stage.name, error) from error
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if self._cameras is not None:
                self._cameras.end()
            self._failure.record(error)  # the first is what the user sees, not the group's order
            raise

    async def _close_parts(self) -> None:
        self._receiver.take_back()
        self._receiver.release()
        if self._parts is None:
            return
        self._failure.forget_locals()
        abandoned, errors = await close_in_time(
            self._parts.close, lambda: self._cancelled or self._failure.error is not None
        )
        self.abandoned += abandoned
        for error in errors:
            self._failure.record(error)

    # What a program does with it.

    async def wait(self) -> None:
        """Let frames flow until the end; raises the first error, once everything is closed.

        Results that no ``async for`` takes go to the sinks alone. Inside of one use ``stop``.
        """
        task = self._running()
        await self._refuse_in_loop("wait")
        with self._awaiting_end():
            self._only_sinks = self._receiver.holder is None
            self._go.set()
            await asyncio.wait({task})
        self._failure.raise_copy()

    async def drain(self, deadline: float | None = None) -> None:
        """Take no more frames and let what is in flight come through, at most ``deadline`` s.

        The configuration's ``drain_s`` by default. Afterwards whatever is left is
        dropped, as ``cancel`` does. Legal in every state. For another task than the one in
        ``async for``, which must go on taking results; inside the loop use ``stop``.
        """
        self._check_loop()
        if self._task is None or self._task.done():
            self.stop()
            return
        await self._refuse_in_loop("drain")
        limit = self.config.drain_s if deadline is None else deadline
        self.stop()
        # A camera that is stuck in a read must not use up the time of the frames in flight.
        giving_up = self._cameras.give_up_after(min(1.0, limit / 2)) if self._cameras else []
        try:
            with self._awaiting_end():
                done, _ = await asyncio.wait({self._task}, timeout=limit)
        finally:
            for each in giving_up:
                each.cancel()
        if not done:
            self.cancel()
            await wait_through(self._task)

    def stop(self) -> None:
        """Take no more frames; what is in flight still comes through. Returns at once.

        Before ``open`` none is taken at all. Where no ``async for`` is under way, the results
        that wait for one are lost, and the sinks get all; one that still waits for a reader
        fails. From any thread.
        """
        if self._hand_over(self.stop):
            return
        self._stopping = True
        if self._task is None:
            return
        if self._cameras is None or not self._opened.done():
            self.cancel()
            return
        self._cameras.stop()
        for sink in () if self._parts is None else self._parts.sinks:
            sink.interrupt()
        self._receiver.release_if_left()
        self._go.set()

    def cancel(self) -> None:
        """Drop what is in flight and close; returns at once. In every state, from any thread."""
        if self._hand_over(self.cancel):
            return
        self._stopping = True
        if self._task is None or self._cancelled or self._task.done():
            return
        self._cancelled = True
        if self._cameras is not None:
            self._cameras.stop()
        if self._begun:  # else it would not even close; it looks at `_stopping` first
            self._task.cancel()

    async def add_camera(self, name: str, source: SourceSettings) -> None:
        """Take frames of another camera, too, while the pipeline runs.

        Its file or device is opened now, unless it may come later (``at_start: wait``).
        SourceError when it cannot be opened, ConfigError when the name is taken, ClosedError
        when the pipeline ends.
        """
        cameras = self._open_cameras()
        if source.kind is not None and not source.ready:
            with at("cameras", name):
                source = await call_in_thread("import", source.imported)
        await cameras.add(name, source)

    async def remove_camera(self, name: str) -> None:
        """Take no more frames of a camera; those that are with the engine still come through.

        The pipeline goes on, even without a camera, until ``stop``.
        """
        await self._open_cameras().remove(name)

    def events(self) -> EventStream:
        """Past and future events of cameras, engine and sinks; for ``async for``.

        Each call gives a listener of its own, which gets every event.
        """
        self._running()
        if self._parts is None:
            raise ClosedError("pipeline: it was stopped before it was open")
        return self._parts.events.stream()

    def health(self) -> Health:
        """Check that every camera delivers frames and the engine turns them into results."""
        ended = self._task is not None and self._task.done()
        if self._parts is None or not self._opened.done():
            return Health(False, ("ended" if ended else "not open yet",))
        problems = ["ended"] if ended else []
        problems += [] if self._failure.error is None else [str(self._failure.error)]
        for name, camera in self.recorder.cameras.copy().items():
            if camera.state in ("connecting", "stale", "lost"):
                problems.append(f"camera {name}: {camera.state}")
            if camera.kept and not ended:
                problems.append(f"camera {name}: {KEPT}")
        if (ring := self._parts.engine.ring) is not None and not ended and ring.starved:
            problems.append(
                "engine: the program keeps the outputs of every slot; .copy() frees them"
            )
        if not self._parts.engine.ready:
            problems.append("engine: being reopened")
        for name in [sink.name for sink in self._wiring.sinks]:
            if self.recorder.state("sink", name) == "failed":
                problems.append(f"sink {name}: failed")
            elif self.recorder.lost_within(name, _LATELY):
                problems.append(f"sink {name}: too slow, results are left out")
        return Health(not problems, tuple(problems))

    def stats(self) -> Stats:
        """Counters and times up to now."""
        parts, model = self._parts, self.config.model
        engine = None if parts is None else parts.engine
        ring = None if engine is None else engine.ring
        executor = None if ring is None or engine is None else engine.executor
        states = [slot.state for slot in ring.slots()] if ring is not None else []
        return Stats(
            **self.recorder.totals(),
            driver_allocations=(0, 0) if engine is None else engine.allocations,
            driver_bytes=0 if executor is None else executor.counters().high_water_bytes,
            zero_copy={} if parts is None else dict(parts.zero_copy),
            notes={} if parts is None else dict(parts.notes),
            engine=model.engine if executor is None else executor.engine,
            device=model.device if executor is None else executor.device,
            engine_reopened=0 if engine is None else engine.reopened,
            depth=self._wiring.depth if ring is None else ring.depth,
            chosen=self._chosen(ring),
            slots={state: states.count(state) for state in sorted(set(states))},
            error=None if self._failure.error is None else str(self._failure.error),
        )

    def __aiter__(self) -> ResultIterator:
        self._running()
        if self._closed and not self._entered:
            raise ClosedError("pipeline: closed")
        if self._only_sinks:
            raise ClosedError(
                "pipeline: its results go to the sinks alone; begin `async for` before `wait`"
            )
        first = not self._receiver.used
        iterator = self._receiver.iterate(self._end)
        if first and self._parts is not None:
            self._receiver.channel.overflow = self._parts.program_overflow
            outlet = Outlet(self._receiver.channel, needs_image=True, lost=self._lost)
            self._parts.outlets.append(outlet)
        self._go.set()
        return iterator

    # Small parts of the above.

    def _open_cameras(self) -> Cameras:
        self._running()
        if self._cameras is None or not self._opened.done():
            raise ClosedError("pipeline: not open yet, so cameras can neither come nor go")
        return self._cameras

    def _running(self) -> asyncio.Task[None]:
        self._check_loop()
        if self._task is None:
            raise ClosedError("pipeline: not open; use it in `async with`")
        return self._task

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not None and loop is not self._loop:
            raise RuntimeError(f"pipeline: it belongs to {self._loop!r}, not to {loop!r}")

    def _hand_over(self, call: Callable[[], None]) -> bool:
        """Let the loop do it; False if the caller is to do it."""
        loop = self._loop
        if loop is None or not loop.is_running():
            return False
        with contextlib.suppress(RuntimeError):
            if asyncio.get_running_loop() is loop:
                return False
        with contextlib.suppress(RuntimeError):  # it was closed meanwhile
            loop.call_soon_threadsafe(call)
        return True

    async def _refuse_in_loop(self, what: str) -> None:
        """ClosedError in the task that iterates: nobody would take the results."""
        task = asyncio.current_task()
        for _ in range(3):
            if self._receiver.holder is not task:
                return
            await asyncio.sleep(0)  # an async generator that was left lets go of its loop soon
        raise ClosedError(
            f"pipeline: {what}() would wait for the `async for` that this task is in; "
            "use stop() there"
        )

    @contextlib.contextmanager
    def _awaiting_end(self) -> Iterator[None]:
        """While a task awaits the end, do not keep results for a program that left its loop."""
        self._receiver.release_if_left()
        self._waiters += 1
        try:
            yield
        finally:
            self._waiters -= 1

    def _left(self) -> None:
        if self._waiters:
            self._receiver.release_if_left()

    def _lost(self) -> None:
        self.recorder.lost("program")

    async def _end(self) -> None:
        assert self._task is not None
        await asyncio.wait({self._task})
        self._failure.raise_copy()


Health.__module__ = "pipeline"  # so that pickles survive moves
