"""The machine: opens the parts, runs them as tasks of one group, stops them in order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from pipeline import graph as wiring
from pipeline.backends import backend
from pipeline.backends.executor import Executor
from pipeline.backends.image import ImageInput
from pipeline.channel import Channel, ChannelClosed
from pipeline.clock import Clock, MonotonicClock
from pipeline.contracts import StreamInfo
from pipeline.errors import (
    ClosedError,
    DeviceError,
    EngineNotInstalledError,
    ModelError,
    PipelineError,
    RunError,
)
from pipeline.frame import Frame
from pipeline.postprocess import make_postprocess
from pipeline.preprocess import Preprocessor
from pipeline.results import Result
from pipeline.ring import Ring
from pipeline.settings import Config
from pipeline.sinks import make_sink
from pipeline.sources import make_reader
from pipeline.stages.base import Stage
from pipeline.stages.capture import Capture, CaptureSettings
from pipeline.stages.deliver import Deliver
from pipeline.stages.finish import Finish, Outlet
from pipeline.stages.prepare import InFlight, Prepare
from pipeline.stats import Recorder, Stats
from pipeline.worker import call_in_thread

__all__ = ["Runner"]

T = TypeVar("T", bound="Runner")

# How long a stage may take to close: flushing a file after the last result, or when cancelled.
_CLOSE_SECONDS = 5.0
_CANCEL_SECONDS = 1.0


class Runner:
    """A pipeline in one event loop: ``async with``, then ``async for`` or ``wait``.

    Frames begin to flow with ``async for`` or ``wait``. One task owns all others; it opens the
    parts, runs the stages as one group and closes everything in order, whatever happens.
    ``abandoned`` names the threads that were stuck and had to be left behind.
    """

    def __init__(
        self,
        config: Config,
        *,
        frames: AsyncIterable[Any] | None = None,
        live: bool = False,
        max_frames: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self.abandoned: list[str] = []
        self._frames = frames
        self._live = live if frames is not None else None
        self._max_frames = max_frames
        self._clock: Clock = clock or MonotonicClock()
        self._graph = wiring.build(config, live=self._live)
        self._recorder = Recorder()
        self._executor: Executor | None = None
        self._ring: Ring | None = None
        self._engine: asyncio.Task[tuple[Executor, Ring]] | None = None
        self._allocations = (0, 0)
        self._zero_copy: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        self._error: BaseException | None = None
        self._raised = False
        self._cancelled = False
        self._task: asyncio.Task[None] | None = None
        self._program: Channel[Result] | None = None
        self._current: Result | None = None

    # Opening and the life of the owning task.

    async def open(self) -> None:
        """Open sources, sinks and model. Raises what the first of them that fails raises."""
        if self._task is not None:
            raise ClosedError("pipeline: it was opened already; make another one")
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._go = asyncio.Event()
        self._consumed = asyncio.Event()
        self._wire()
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
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
        if error is None:
            self._raise_error()

    async def close(self) -> None:
        """Cancel what still runs and wait until everything is closed; bounded."""
        self.cancel()
        await self._ended()

    def _wire(self) -> None:
        graph, recorder, clock = self._graph, self._recorder, self._clock
        source = self._frames if self._frames is not None else self.config.source
        reader = make_reader(source, clock, asyncio.get_running_loop(), live=bool(self._live))
        self._waiting: Channel[Frame] = Channel(graph.queue, graph.overflow, self._drop_frame)
        self._in_flight: Channel[InFlight] = Channel(graph.depth, "block", self._drop_in_flight)
        settings = CaptureSettings(graph.camera, graph.paced, graph.frame_buffers, self._max_frames)
        self._capture = Capture(reader, self._waiting, settings, clock, recorder)
        self._postprocess = make_postprocess(self.config.postprocess)
        self._outlets: list[Outlet] = []
        self._sinks: list[Deliver] = []
        for sink_settings, sink in zip(self.config.sinks, graph.sinks, strict=True):
            channel: Channel[Result] = Channel(
                sink.queue, sink.policy, functools.partial(self._drop_result, sink.name)
            )
            lost = functools.partial(self._recorder.lost, sink.name)
            name = f"sink-{sink.name}"
            self._sinks.append(Deliver(name, make_sink(sink_settings), channel, lost))
            self._outlets.append(Outlet(channel, sink.needs_image))
        self._stages: list[Stage] = [self._capture]

    async def _live_and_die(self) -> None:
        try:
            stages = await self._open_parts()
            self._opened.set_result(None)
            await self._go.wait()
            async with asyncio.TaskGroup() as group:
                for stage in stages:
                    group.create_task(self._guard(stage), name=stage.name)
            if self._program is not None:
                await self._consumed.wait()  # its last results still borrow slots and frames
            if self._capture.error is not None:
                self._note(self._capture.error)
        except* asyncio.CancelledError:
            pass
        except* Exception as group_error:
            self._note(_first(group_error))
        finally:
            closing = asyncio.create_task(self._close_parts(), name="pipeline-close")
            while not closing.done():
                # Closing is bounded by itself; a second cancel must not leave it half done.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(closing)

    async def _guard(self, stage: Stage) -> None:
        try:
            await stage.run()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._note(error)  # the first one is what the user sees, not the order of the group
            raise

    async def _open_parts(self) -> list[Stage]:
        with _at("source.uri"):
            frame_format = await self._capture.open()
        # Neither loading a model nor allocating can be interrupted: it goes on when this is.
        self._engine = asyncio.create_task(self._open_engine(), name="open-engine")
        executor, ring = await asyncio.shield(self._engine)
        clock, recorder = self._clock, self._recorder
        swap = self._image_input().color != self.config.preprocess.color
        preprocessor = Preprocessor(self.config.preprocess, swap_colors=swap)
        prepare = Prepare(preprocessor, self._waiting, ring, self._in_flight, clock, recorder)
        with _at("model.path"):
            prepare.fit(frame_format, executor.inputs)
        names = [spec.name for spec in executor.outputs]
        finish = Finish(self._postprocess, names, self._in_flight, self._outlets, clock, recorder)
        for stage in (prepare, finish):
            self._stages.append(stage)
            await stage.open()
        # Last, as opening a file empties it: a run that cannot start keeps the results before it.
        for index, sink in enumerate(self._sinks):
            self._stages.append(sink)
            sink.describe(StreamInfo(self._graph.camera, frame_format))
            with _at(f"sinks.{index}"):
                await sink.open()
        return list(self._stages)

    async def _open_engine(self) -> tuple[Executor, Ring]:
        with _at("model"):
            executor = await Executor.from_settings(self.config.model, self._image_input())
        if self._task is None or self._task.done():
            await executor.close()  # nobody waited for it so long
            raise ClosedError("pipeline: closed")
        self._executor = executor
        with _at("postprocess.kind"):
            self._postprocess.open(executor.inputs, executor.outputs)
        with _at("ring.depth"):
            self._ring = ring = await executor.ring(self._graph.depth)
        allocations = executor.counters().allocations
        self._allocations = (allocations, allocations)
        self._zero_copy = await call_in_thread("zero-copy", executor.routes)
        self._notes = executor.notes()
        return executor, ring

    def _image_input(self) -> ImageInput:
        """What the engine converts; one that cannot swap colours gets them swapped."""
        preprocess = self.config.preprocess
        color = preprocess.color if backend(self.config.model.engine).FOLDS_IMAGE else "bgr"
        return ImageInput(color, preprocess.mean, preprocess.scale)

    async def _engine_settled(self, timeout: float) -> bool:
        """Whether nothing of the engine is being opened any more."""
        if self._engine is None:
            return True
        done, _ = await asyncio.wait({self._engine}, timeout=timeout)
        return bool(done)

    async def _close_parts(self) -> None:
        timeout = _CANCEL_SECONDS if self._cancelled or self._error else _CLOSE_SECONDS
        self._waiting.clear()
        self._in_flight.clear()
        settled, *outcomes = await asyncio.gather(
            self._engine_settled(timeout),
            *(stage.close(timeout) for stage in self._stages),
            return_exceptions=True,
        )
        for stage, outcome in zip(self._stages, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                self._note(outcome)
            elif not outcome:
                self.abandoned.append(stage.name)
        for outlet in self._outlets:
            outlet.channel.clear()
        if not settled:
            self.abandoned.append("open-engine")
        if self._ring is not None:
            await self._ring.close()
        if self._executor is not None:
            if self._ring is not None:
                self._allocations = (self._allocations[0], self._executor.counters().allocations)
            closed = await self._executor.close(timeout)
            if not closed and self._ring is not None and self._ring.running:
                self.abandoned.append("executor")  # else only the program's own arrays are left

    # What a program does with it.

    async def wait(self) -> None:
        """Let frames flow until the end; raises the first error, once everything is closed."""
        self._start()
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
        patience = min(1.0, limit / 2)
        giving_up = asyncio.get_running_loop().call_later(patience, self._capture.give_up)
        try:
            done, _ = await asyncio.wait({self._task}, timeout=limit)
        finally:
            giving_up.cancel()
        if not done:
            self.cancel()
            await self._ended()

    def stop(self) -> None:
        """Take no more frames; what is in flight still comes through. Returns at once."""
        if self._task is None:
            return
        if not self._opened.done():
            self.cancel()
            return
        self._capture.stop()
        self._go.set()

    def cancel(self) -> None:
        """Drop what is in flight and close; returns at once. Legal in every state."""
        if self._task is not None and not self._cancelled and not self._task.done():
            self._cancelled = True
            self._capture.stop()
            self._task.cancel()

    def stats(self) -> Stats:
        """Counters and times up to now."""
        recorder, executor, ring = self._recorder, self._executor, self._ring
        at_start, at_end = self._allocations
        if executor is not None and ring is not None and not ring.closed:
            at_end = executor.counters().allocations
        slots = ring.slots() if ring is not None else []
        states = [slot.state for slot in slots]
        elapsed = recorder.elapsed_s
        return Stats(
            frames=recorder.frames,
            results=recorder.results,
            dropped=dict(recorder.dropped),
            undelivered=dict(recorder.undelivered),
            fps=recorder.results / elapsed if elapsed > 0 else 0.0,
            elapsed_s=elapsed,
            latency_ms=recorder.latency.milliseconds(),
            stage_ms={name: times.milliseconds() for name, times in recorder.stages.items()},
            driver_allocations=(at_start, at_end),
            zero_copy=dict(self._zero_copy),
            notes=dict(self._notes),
            engine=executor.engine if executor is not None else self.config.model.engine,
            device=executor.device if executor is not None else self.config.model.device,
            depth=self._graph.depth,
            slots={state: states.count(state) for state in sorted(set(states))},
            error=None if self._error is None else str(self._error),
        )

    def __aiter__(self: T) -> T:
        if self._task is None:
            raise ClosedError("pipeline: not open; use it in `async with`")
        if self._program is None:
            if self._cancelled or self._task.done():
                raise ClosedError("pipeline: closed")
            if self._go.is_set():
                raise ClosedError("pipeline: it runs already; begin `async for` before `wait`")
            self._program = Channel(
                wiring.PROGRAM_QUEUE,
                self._graph.program_policy,
                functools.partial(self._drop_result, "program"),
            )
            self._outlets.append(Outlet(self._program, True))
        self._start()
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

    def _start(self) -> None:
        if self._task is None:
            raise ClosedError("pipeline: not open; use it in `async with`")
        self._go.set()

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

    def _drop_frame(self, frame: Frame, cause: str) -> None:
        self._recorder.dropped[cause] += 1
        frame.release()

    def _drop_in_flight(self, item: InFlight, cause: str) -> None:
        self._recorder.dropped[cause] += 1
        item.run.cancel()
        item.slot.release()
        item.frame.release()

    def _drop_result(self, receiver: str, result: Result, cause: str) -> None:
        self._recorder.lost(receiver)
        result.release()


# Where in the configuration the cause of an engine's error is to be looked for.
_MODEL_PLACES: dict[type[PipelineError], str] = {
    ModelError: "model.path",
    DeviceError: "model.device",
    EngineNotInstalledError: "model.engine",
}


@contextlib.contextmanager
def _at(place: str) -> Iterator[None]:
    """Begin an error's message with its place in the configuration, unless it has one."""
    try:
        yield
    except PipelineError as error:
        if str(error).split(".", 1)[0] in Config.model_fields:
            raise
        if str(error).startswith("options."):
            raise type(error)(f"model.{error}") from error
        if place == "ring.depth" and isinstance(error, RunError | DeviceError):
            place = "model"  # its first run, which the ring tries each slot with
        if place == "model":
            place = _MODEL_PLACES.get(type(error), place)
        if "model.input_shape" in str(error):
            place = "model.input_shape"
        raise type(error)(f"{place}: {error}") from error


def _first(error: BaseException) -> BaseException:
    """The first plain error inside groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
