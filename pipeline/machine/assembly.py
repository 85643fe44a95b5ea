"""The parts of a running pipeline: made from the configuration, opened and closed in order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

from pipeline.clock import Clock
from pipeline.config.settings import Config
from pipeline.contracts import Postprocess, Preprocess, StreamInfo
from pipeline.engines import engine_module
from pipeline.engines.executor import Executor
from pipeline.engines.image import ImageInput
from pipeline.errors import (
    Abandoned,
    AllocationError,
    ClosedError,
    DeviceError,
    EngineNotInstalledError,
    ModelError,
    PipelineError,
    RunError,
    SinkError,
    SourceError,
    at,
)
from pipeline.flow.backoff import Backoff
from pipeline.flow.capture import CaptureSettings, CaptureStage
from pipeline.flow.channel import Channel
from pipeline.flow.engine_supervisor import EngineSettings, EngineSupervisor
from pipeline.flow.events import Event, EventHub, EventLog, State
from pipeline.flow.fair_share import FairShare
from pipeline.flow.outlet import Outlet
from pipeline.flow.postprocess import PostprocessStage
from pipeline.flow.sink import SinkStage
from pipeline.flow.slot_filler import CameraFeed, InFlight
from pipeline.flow.stage import Stage
from pipeline.flow.stats import CameraRecorder, Kind, Recorder
from pipeline.flow.submit import SubmitStage
from pipeline.machine import wiring
from pipeline.memory.frame import Frame, FrameFormat
from pipeline.memory.results import Result
from pipeline.memory.ring import Ring
from pipeline.postprocess import make_postprocess
from pipeline.preprocess.preprocessor import Preprocessor
from pipeline.sinks import make_sink
from pipeline.sources import SourceSettings, make_reader
from pipeline.worker import call_in_thread

__all__ = ["Assembly", "at_model", "at_source", "image_input", "ring_that_fits"]

_log = logging.getLogger(__name__)

_NEWS_SECONDS = 10.0
# What of the time for closing is the engine's, even if all other parts are stuck.
_ENGINE_SECONDS = 0.9


class Assembly:
    """Everything that is opened for one run. ``stages`` are those to be run as tasks."""

    def __init__(
        self,
        config: Config,
        wired: wiring.Wiring,
        clock: Clock,
        recorder: Recorder,
        max_frames: int | None = None,
        ready: Executor | None = None,
    ) -> None:
        self.config = config
        self._ready = ready  # the engine's first executor, where it is open already
        self.wiring = wired
        self.clock = clock
        self.recorder = recorder
        self.max_frames = max_frames
        self.events = EventHub()
        self.program_overflow = wired.program_overflow
        self.zero_copy: dict[str, str] = {}
        self.notes: dict[str, str] = {}
        self.outlets: list[Outlet] = []
        self.captures: dict[str, CaptureStage] = {}
        self.sinks: list[SinkStage] = []
        self._channels: dict[str, Channel[Frame]] = {}
        self._feeds: dict[str, CameraFeed] = {}
        self._selector: FairShare[Frame] = FairShare()
        self._in_flight: Channel[InFlight] = Channel(
            wired.depth, "block", lambda item, cause: item.drop(cause)
        )
        self._postprocess = make_postprocess(config.postprocess)
        model = config.model
        settings = EngineSettings(
            model.run_timeout_s, model.max_failures, Backoff(attempts=model.reopen_attempts)
        )
        self.engine = EngineSupervisor(
            self._open_engine, settings, self._state_reporter("engine", "engine")
        )
        self.dispatch = SubmitStage(
            self._feeds,
            self._selector,
            self.engine,
            self._in_flight,
            clock,
            model.batch_wait_ms / 1e3,
        )
        self.finish = PostprocessStage(
            self._postprocess, self.engine, self._in_flight, self.outlets, clock
        )
        self._make_sinks()

    def add_camera(self, camera: wiring.CameraWiring, source: SourceSettings) -> CaptureStage:
        """Make the parts of one camera; its frames are taken once its capture runs."""
        name, recorder = camera.name, self.recorder.camera(camera.name)
        if self.wiring.needs_images:
            source = source.model_copy(update={"pixels": "bgr"})
        drop = functools.partial(_drop_frame, recorder)
        channel: Channel[Frame] = Channel(camera.queue, camera.overflow, drop)
        limits = (self.max_frames, source.frames)
        reconnect = source.reconnect
        settings = CaptureSettings(
            name,
            camera.paced,
            camera.buffers,
            camera.supervised,
            camera.wait_at_start,
            source.open_timeout_s,
            source.read_timeout_s,
            source.stale_after_s if camera.supervised else 0.0,
            source.max_fps,
            min((limit for limit in limits if limit is not None), default=None),
            source.max_pixels,
            Backoff(reconnect.initial_s, reconnect.max_s, reconnect.jitter, reconnect.attempts),
        )
        loop = asyncio.get_running_loop()
        make = functools.partial(make_reader, source, self.clock, loop)
        found_end = functools.partial(self._lose_nothing, channel, source)
        report_state = self._state_reporter("camera", name)
        capture = CaptureStage(
            make, channel, settings, self.clock, recorder, report_state, found_end
        )
        age = None if source.max_age_ms is None else round(source.max_age_ms * 1e6)
        own = self.config.preprocess_of(source)
        swap = own.color != image_input(self.config).color
        preprocess = Preprocessor(own, swap_colors=swap)
        self.dispatch.newest |= camera.overflow != "block"
        self._feeds[name] = CameraFeed(name, preprocess, recorder, age, capture.fail)
        self._selector.add(name, channel, source.weight)
        self._channels[name] = channel
        self.captures[name] = capture
        return capture

    @property
    def postprocess(self) -> Postprocess:
        """Decoder of the outputs."""
        return self._postprocess

    def preprocess(self, camera: str) -> Preprocess:
        """Preprocessing of a camera's frames."""
        return self._feeds[camera].preprocess

    def forget_camera(self, name: str, capture: CaptureStage) -> None:
        """Drop what waits of a camera that was removed, and all that is known of it, once."""
        if self.captures.get(name) is not capture:
            return
        self._selector.remove(name)
        self._channels.pop(name).clear()
        self.captures.pop(name)
        self._feeds.pop(name)
        self.recorder.forget(name)

    def end_of_cameras(self) -> None:
        """No camera will be added any more: end with the last one."""
        self._selector.close()

    async def open(self) -> None:
        """Open sources, engine and, last, the sinks. Raises what the first that fails raises."""
        formats = {}
        for name, capture in self.captures.items():
            with at_source(self.config, name):
                formats[name] = await capture.open()
        await self.finish.open()
        executor = await self.engine.open()
        for name, found in formats.items():
            if found is not None:
                self._fit(self._feeds[name], found, executor)
        await self.dispatch.open()
        # Last, as this makes files, which a run that cannot start does not need.
        only = len(formats) == 1
        for index, sink in enumerate(self.sinks):
            name = next(iter(formats)) if only else ""
            sink.describe(StreamInfo(name, formats[name] if only else None))
            with at("sinks", index):
                await sink.open()
        self.zero_copy = await call_in_thread("zero-copy", executor.routes)
        self.notes = executor.notes()

    def _fit(self, feed: CameraFeed, found: FrameFormat, executor: Executor) -> None:
        try:
            feed.faults.call("preprocess", feed.preprocess.open, found, executor.inputs[0])
        except SourceError:
            with at_source(self.config, feed.name):
                raise
        except PipelineError as error:
            error.locate(*(["preprocess"] if error.path else ["model", "path"]))
            raise

    async def close(self, timeout: float) -> tuple[list[Abandoned], list[BaseException]]:
        """Close in order: sources, stages, sinks, ring, driver memory, executor.

        The parts that hung, and the errors of closing. May be
        cancelled and begun again.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        for channel in self._channels.values():
            channel.clear()
        self._in_flight.clear()
        stages: list[CaptureStage | Stage] = [
            *self.captures.values(),
            self.dispatch,
            self.finish,
            *self.sinks,
        ]
        closed = await asyncio.gather(
            *(stage.close(timeout - _ENGINE_SECONDS) for stage in stages), return_exceptions=True
        )
        for outlet in self.outlets:
            outlet.channel.clear()
        ends = zip(stages, closed, strict=True)
        abandoned = [Abandoned(stage.kind, stage.name) for stage, end in ends if end is False]
        errors: list[BaseException] = [*self._unwritten()]
        errors += [end for end in closed if isinstance(end, BaseException)]
        left = until - loop.time()
        if self._ready is not None:
            await self._ready.close(left)
        abandoned += await self.engine.close(max(0.1, until - loop.time()))
        for capture in self.captures.values():
            if capture.pool is not None:
                capture.pool.close()
        self.events.close()
        return abandoned, errors

    def _unwritten(self) -> Iterator[SinkError]:
        """An error for each sink that still fails at the end."""
        for wired, sink in zip(self.wiring.sinks, self.sinks, strict=True):
            if sink.failing is not None:
                lost = self.recorder.undelivered[wired.name]
                yield SinkError(f"{sink.failing}; {lost} results were not written")

    def drop_result(self, receiver: str, result: Result, cause: str) -> None:
        """Count a result that a receiver could not take."""
        if cause == "cancelled":
            self.recorder.lost(receiver)
        else:
            self._lost(receiver)
        result.release()

    def _lost(self, receiver: str) -> None:
        """Count a result that a receiver did not get, and report_state so if that is news."""
        known = receiver == "program" or self.recorder.state("sink", receiver) == "failed"
        news = not self.recorder.lost_within(receiver, _NEWS_SECONDS)
        self.recorder.lost(receiver)
        if news and not known:
            extra = {"source": receiver}
            _log.warning("%s: too slow, results are left out", receiver, extra=extra)

    def _make_sinks(self) -> None:
        for settings, sink in zip(self.config.sinks, self.wiring.sinks, strict=True):
            channel: Channel[Result] = Channel(
                sink.queue, sink.overflow, functools.partial(self.drop_result, sink.name)
            )
            self.sinks.append(
                SinkStage(
                    sink.name,
                    make_sink(settings),
                    channel,
                    functools.partial(self.recorder.lost, sink.name),
                    on_error=settings.on_error,
                    report_state=self._state_reporter("sink", sink.name),
                )
            )
            # What waits, what is being written, and what is on its way.
            spares = sink.queue + 2 if sink.overflow == "drop_newest" else 0
            outlet = Outlet(
                channel,
                needs_image=sink.needs_image,
                lost=functools.partial(self._lost, sink.name),
                spares=spares,
            )
            self.outlets.append(outlet)

    async def _open_engine(self) -> tuple[Executor, Ring]:
        ready, self._ready = self._ready, None
        executor = ready
        if executor is None:
            with at_model():
                executor = await Executor.from_settings(self.config.model, image_input(self.config))
        try:
            if self.engine.closing:
                raise ClosedError("pipeline: closed")  # nobody waited for it so long
            _check_inputs(executor)
            inputs, outputs = _single(executor)
            with at("postprocess", default=["kind"]):
                await self.finish.fit(inputs, outputs)
            ring = await ring_that_fits(executor, self.wiring.depth, self.wiring.least_depth)
            if ready is not None:
                executor.trim()  # what it was measured with
        except BaseException:
            await executor.close(0.5)
            raise
        return executor, ring

    def _state_reporter(self, kind: Kind, source: str) -> Callable[[State, str], None]:
        log = EventLog()

        def report_state(state: State, reason: str) -> None:
            event = Event(source, state, reason, self.clock.now(), kind)
            self.recorder.event(kind, source, state)
            self.events.send(event)
            log.record(event)

        return report_state

    def _lose_nothing(self, channel: Channel[Frame], source: SourceSettings) -> None:
        """A URL turned out to be a file: it and, if all are, the receivers wait for one another."""
        if source.overflow is not None or source.realtime:
            return
        channel.overflow = "block"
        if any(other.lossy for other in self._channels.values()):
            return
        self.dispatch.newest = False
        self.program_overflow = "block"
        # The sinks' come first and in their order, then the program's own.
        overflows = [settings.overflow for settings in self.config.sinks]
        for outlet, overflow in zip_longest(self.outlets, overflows):
            if overflow is None:
                outlet.channel.overflow = "block"


@contextlib.contextmanager
def at_source(config: Config, name: str) -> Iterator[None]:
    """Around calls of a camera's reader: its errors get the path of the camera."""
    key = "uri" if config.sources[name].kind is None else "kind"
    above = ("source",) if config.source is not None else ("cameras", name)
    with at(*above, default=[key]):
        yield


def _drop_frame(recorder: CameraRecorder, frame: Frame, cause: str) -> None:
    recorder.dropped[cause] += 1
    frame.release()


def image_input(config: Config) -> ImageInput:
    """Conversions for the engine; one that cannot swap colors gets them swapped."""
    preprocess = config.preprocess
    color = preprocess.color if engine_module(config.model.engine).SWAPS_COLORS else "bgr"
    return ImageInput(color, preprocess.mean, preprocess.scale)


async def ring_that_fits(
    executor: Executor, depth: int, least: int, level: int = logging.WARNING
) -> Ring:
    """A ring of ``depth`` slots, or of ``least``, which is logged, where memory has an end."""
    try:
        return await _ring(executor, depth)
    except AllocationError as error:
        if least >= depth:
            raise
        _log.log(level, "ring.depth: %d in place of %d: %s", least, depth, error.message)
    return await _ring(executor, least)


async def _ring(executor: Executor, depth: int) -> Ring:
    try:
        return await executor.ring(depth)
    except (RunError, DeviceError):  # of the first run, which the ring tries each slot with
        with at_model():
            raise
    except PipelineError as error:
        error.locate("ring", "depth")
        raise


def _check_inputs(executor: Executor) -> None:
    if len(executor.inputs) != 1:
        names = ", ".join(repr(spec.name) for spec in executor.inputs)
        raise ModelError(
            f"the model has {len(executor.inputs)} inputs ({names}), but a pipeline feeds one "
            "image; use Executor for such a model",
            ("model", "path"),
        )


def _single(executor: Executor) -> tuple[list[Any], list[Any]]:
    """The tensors as one image of a batch sees them."""
    from pipeline import _native

    batch = executor.inputs[0].shape[0] if executor.inputs[0].shape else 1
    if batch == 1:
        return list(executor.inputs), list(executor.outputs)
    for spec in executor.outputs:
        if not spec.shape or spec.shape[0] != batch:
            text = f"output {spec.name!r} {list(spec.shape)} has no batch of {batch}"
            raise ModelError(f"{text}, as the input has", ("model", "path"))

    def one(spec: _native.TensorSpec) -> _native.TensorSpec:
        return _native.TensorSpec(spec.name, spec.dtype, (1, *spec.shape[1:]), spec.layout)

    return [one(spec) for spec in executor.inputs], [one(spec) for spec in executor.outputs]


# The setting to look at for an engine's error.
_MODEL_KEYS: dict[type[PipelineError], str] = {
    ModelError: "path",
    DeviceError: "device",
    EngineNotInstalledError: "engine",
}


@contextlib.contextmanager
def at_model() -> Iterator[None]:
    """Around calls of the engine: its errors get the path of the setting to look at."""
    try:
        yield
    except PipelineError as error:
        if error.path[:1] == ("image",):
            error.path = ("preprocess", *error.path[1:])
        elif error.path or error.errors or type(error) not in _MODEL_KEYS:
            error.locate("model")
        else:
            error.locate("model", _MODEL_KEYS[type(error)])
        raise
