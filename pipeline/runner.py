"""The machine: runs the parts as tasks of one group and stops them in order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
import traceback
from collections.abc import AsyncIterable
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from pipeline import graph as wiring
from pipeline.assembly import Assembly
from pipeline.backends.executor import Executor
from pipeline.cameras import Cameras
from pipeline.channel import Channel, ChannelClosed
from pipeline.choice import Choice
from pipeline.clock import Clock, MonotonicClock
from pipeline.contracts import Reader
from pipeline.errors import ClosedError
from pipeline.events import EventStream
from pipeline.lag import LoopLag
from pipeline.results import Result
from pipeline.ring import Ring
from pipeline.settings import Config
from pipeline.sources import SourceSettings
from pipeline.stages.base import Stage
from pipeline.stages.outlet import Outlet
from pipeline.stats import Recorder, Stats
from pipeline.tuning import tune

__all__ = ["Health", "Runner"]

T = TypeVar("T", bound="Runner")


class Health(NamedTuple):
    """Whether all is well, and if not, what is not."""

    ok: bool
    problems: tuple[str, ...]


# How long a stage may take to close: flushing a file after the last result, or when cancelled.
_CLOSE_SECONDS = 5.0
_CANCEL_SECONDS = 1.0
_LATELY = 5.0  # seconds for which a sink that missed a result counts as too slow


class Runner:
    """A pipeline in one event loop: ``async with``, then ``async for`` or ``wait``.

    Frames begin to flow with ``async for`` or ``wait``. One task owns all others; it opens the
    parts, runs the stages as one group and closes everything in order, whatever happens.
    ``abandoned`` names the threads that were stuck and had to be left behind. ``frames``, an
    async iterable of arrays or a ``Reader``, replaces the one source.
    """

    def __init__(
        self,
        config: Config,
        *,
        frames: AsyncIterable[Any] | Reader | None = None,
        live: bool = False,
        max_frames: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self.abandoned: list[str] = []
        self._frames = frames
        self._max_frames = max_frames
        self._clock: Clock = clock or MonotonicClock()
        self._live = live if frames is not None else None
        self._graph = wiring.build(config, live=self._live)
        self.recorder = Recorder()
        self._parts: Assembly | None = None
        self._choice: Choice | None = None
        self._cameras: Cameras | None = None
        self._error: BaseException | None = None
        self._raised = False
        self._cancelled = False
        self._never_open = False
        self._entered = False
        self._task: asyncio.Task[None] | None = None
        self._program: Channel[Result] | None = None
        self._current: Result | None = None

    # Opening and the life of the owning task.

    async def open(self) -> None:
        """Open sources, model and sinks. Raises what the first of them that fails raises."""
        if self._task is not None:
            raise ClosedError("pipeline: it was opened already; make another one")
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._go = asyncio.Event()
        self._consumed = asyncio.Event()
        if not self.config.model.measured:
            self._make_parts(self.config)
        self._task = asyncio.create_task(self._live_and_die(), name="pipeline")
        waiting: set[asyncio.Future[None]] = {self._opened, self._task}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.close()
            raise
        if self._task.done():
            self._raise_error()

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
        await self.close()
        if error is None:
            self._raise_error()

    async def close(self) -> None:
        """Cancel what still runs and wait until everything is closed; bounded."""
        self.cancel()
        await self._ended()

    def _make_parts(self, config: Config, engine: Executor | None = None) -> Assembly:
        """All parts, not yet open but for the engine, where that is open already."""
        self._graph = wiring.build(config, live=self._live)
        self._parts = parts = Assembly(
            config, self._graph, self._clock, self.recorder, self._max_frames, engine
        )
        for camera in self._graph.cameras:
            parts.add_camera(camera, config.sources[camera.name], self._frames)
        self._cameras = Cameras(config, parts, self._note, self.abandoned)
        return parts

    def _chosen(self, ring: Ring | None) -> Choice | None:
        """What was chosen, with the depth that there was memory for."""
        if self._choice is None or ring is None:
            return self._choice
        return self._choice._replace(depth=ring.depth)

    async def _tune(self) -> Assembly:
        tuned = await tune(self.config, self.abandoned)
        self._choice = tuned.choice
        return self._make_parts(tuned.config, tuned.executor)

    async def _live_and_die(self) -> None:
        parts = self._parts
        if parts is None:
            try:
                parts = await self._tune()
            except asyncio.CancelledError:
                return
            except Exception as error:
                self._note(error)
                return
        assert self._cameras is not None
        await self._run_parts(parts, self._cameras)

    async def _run_parts(self, parts: Assembly, cameras: Cameras) -> None:
        lag = LoopLag(asyncio.get_running_loop(), self.recorder.loop_lag)
        try:
            await parts.open()
            self._opened.set_result(None)
            await self._go.wait()
            lag.start()
            async with asyncio.TaskGroup() as group:
                for stage in (parts.dispatch, parts.finish, *parts.sinks):
                    group.create_task(self._guard(stage), name=stage.name)
                cameras.start(group)
            if self._program is not None:
                await self._consumed.wait()  # its last results still borrow slots and frames
        except* asyncio.CancelledError:
            pass
        except* Exception as group_error:
            self._note(_first(group_error))
        finally:
            lag.stop()
            cameras.end()
            await self._close_parts(parts)

    async def _guard(self, stage: Stage) -> None:
        try:
            await stage.run()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if self._cameras is not None:
                self._cameras.end()
            self._note(error)  # the first one is what the user sees, not the order of the group
            raise

    async def _close_parts(self, parts: Assembly) -> None:
        if self._error is not None:
            _forget_locals(self._error)
        hurried = self._cancelled or self._error is not None
        timeout = _CANCEL_SECONDS if hurried else _CLOSE_SECONDS
        closing = asyncio.ensure_future(parts.close(timeout))
        while not closing.done():
            # Closing is bounded by itself; a second cancel must not leave it half done. The first
            # one, be it that of a drain whose time is over, leaves it less time from now on.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(closing)
            if self._cancelled and not hurried and not closing.done():
                hurried = True
                closing.cancel()
                closing = asyncio.ensure_future(parts.close(_CANCEL_SECONDS))
        abandoned, errors = closing.result()
        self.abandoned += abandoned
        for error in errors:
            self._note(error)

    # What a program does with it.

    async def wait(self) -> None:
        """Let frames flow until the end; raises the first error, once everything is closed."""
        self._running()
        self._go.set()
        await self._ended()
        self._raise_error()

    async def drain(self, deadline: float | None = None) -> None:
        """Take no more frames and let what is in flight come through, at most ``deadline`` s.

        The configuration's ``drain_seconds`` by default. Afterwards whatever is left is
        dropped, as ``cancel`` does. Legal in every state. For another task than the one in
        ``async for``, which must go on taking results; inside the loop use ``stop``.
        """
        if self._task is None:
            return
        limit = self.config.drain_seconds if deadline is None else deadline
        self.stop()
        # A camera that is stuck in a read must not use up the time of the frames in flight.
        giving_up = self._cameras.give_up_after(min(1.0, limit / 2)) if self._cameras else []
        try:
            done, _ = await asyncio.wait({self._task}, timeout=limit)
        finally:
            for each in giving_up:
                each.cancel()
        if not done:
            self.cancel()
            await self._ended()

    def stop(self) -> None:
        """Take no more frames; what is in flight still comes through. Returns at once."""
        if self._task is None:
            return
        if self._cameras is None or not self._opened.done():
            self.cancel()
            return
        self._cameras.stop()
        self._go.set()

    def cancel(self) -> None:
        """Drop what is in flight and close; returns at once. Legal in every state."""
        if self._task is None or self._cancelled or self._task.done():
            return
        self._cancelled = True
        self._never_open = not self._opened.done()
        if self._cameras is not None:
            self._cameras.stop()
        self._task.cancel()

    async def add_camera(self, name: str, source: SourceSettings) -> None:
        """Take frames of another camera, too, while the pipeline runs.

        Its file or device is opened now, unless it may come later (``at_start: wait``).
        SourceError when it cannot be opened, ConfigError when the name is taken, ClosedError
        when the pipeline ends.
        """
        await self._open_cameras().add(name, source)

    async def remove_camera(self, name: str) -> None:
        """Take no more frames of a camera; those that are with the engine still come through.

        The pipeline goes on, even without a camera, until ``stop``.
        """
        await self._open_cameras().remove(name)

    def events(self) -> EventStream:
        """What happened to cameras, engine and sinks so far, and will; for ``async for``.

        Each call gives a listener of its own, which gets every event.
        """
        return self._running().events.stream()

    def health(self) -> Health:
        """Whether frames come from every camera and the engine turns them into results."""
        if self._parts is None or not self._opened.done():
            return Health(False, ("not open yet",))
        problems = [] if self._error is None else [str(self._error)]
        problems += [
            f"camera {name}: {camera.state}"
            for name, camera in self.recorder.cameras.items()
            if camera.state in ("connecting", "stale", "lost")
        ]
        if not self._parts.engine.ready:
            problems.append("engine: being opened anew")
        for name in [sink.name for sink in self._graph.sinks]:
            if self.recorder.states.get(name) == "failed":
                problems.append(f"sink {name}: failed")
            elif time.monotonic() - self.recorder.lost_s.get(name, -_LATELY) < _LATELY:
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
            depth=self._graph.depth if ring is None else ring.depth,
            chosen=self._chosen(ring),
            slots={state: states.count(state) for state in sorted(set(states))},
            error=None if self._error is None else str(self._error),
        )

    def __aiter__(self: T) -> T:
        if self._never_open and self._entered:
            # Stopped by another task before there was a first result.
            self._program = Channel(1, "block", lambda *_: None)
            self._program.close()
            return self
        parts = self._running()
        if self._program is None:
            if self._cancelled or (self._task is not None and self._task.done()):
                raise ClosedError("pipeline: closed")
            if self._go.is_set():
                raise ClosedError("pipeline: it runs already; begin `async for` before `wait`")
            self._program = Channel(
                wiring.PROGRAM_QUEUE,
                self._graph.program_policy,
                functools.partial(parts.drop_result, "program"),
            )
            lost = functools.partial(self.recorder.lost, "program")
            parts.outlets.append(Outlet(self._program, needs_image=True, lost=lost))
        self._go.set()
        return self

    async def __anext__(self) -> Result:
        assert self._program is not None
        self._give_back()
        try:
            self._current = await self._program.get()
        except ChannelClosed:
            self._consumed.set()
            await self._ended()
            self._raise_error()
            raise StopAsyncIteration from None
        return self._current

    # Small parts of the above.

    def _open_cameras(self) -> Cameras:
        self._running()
        if self._cameras is None or not self._opened.done():
            raise ClosedError("pipeline: not open yet, so cameras can neither come nor go")
        return self._cameras

    def _running(self) -> Assembly:
        if self._task is None or self._parts is None:
            raise ClosedError("pipeline: not open; use it in `async with`")
        return self._parts

    async def _ended(self) -> None:
        if self._task is not None:
            await asyncio.wait({self._task})
        self._give_back()

    def _give_back(self) -> None:
        result, self._current = self._current, None
        if result is not None:
            result.release()

    def _note(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error

    def _raise_error(self) -> None:
        if self._error is not None and not self._raised:
            self._raised = True
            raise self._error


def _first(error: BaseException) -> BaseException:
    """The first plain error inside groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _forget_locals(error: BaseException) -> None:
    """Drop what an error's frames hold: views in there would keep slots and driver memory."""
    following: BaseException | None = error
    while following is not None:
        traceback.clear_frames(following.__traceback__)
        following = following.__context__
