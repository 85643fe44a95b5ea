"""From finished runs to results, in capture order, and to all receivers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from pipeline.clock import Clock, MonotonicClock
from pipeline.contracts import Postprocess
from pipeline.errors import (
    ClosedError,
    EngineError,
    ModelError,
    PipelineError,
    RunError,
    SourceError,
    unexpected,
)
from pipeline.flow.channel import Channel, ChannelClosed
from pipeline.flow.engine_supervisor import EngineSupervisor
from pipeline.flow.outlet import Outlet
from pipeline.flow.run_timeout import HungError, RunWatch
from pipeline.flow.slot_filler import BatchItem, InFlight
from pipeline.flow.stage import Stage
from pipeline.memory.frame import Frame
from pipeline.memory.results import Detections, Holders, RawOutput, Result, Stamps
from pipeline.memory.ring import RunReport

if TYPE_CHECKING:
    from pipeline._native import TensorSpec

__all__ = ["PostprocessStage"]

_log = logging.getLogger(__name__)
_MOST_ERRORS = 10  # in a row, after which the run ends


class PostprocessStage(Stage):
    """Awaits each run in the order of submission, decodes it and hands the results on.

    It decodes on the thread ``postprocess``, or on the event loop if ``process`` is ``quick``.
    """

    kind = RunError

    def __init__(
        self,
        postprocess: Postprocess,
        engine: EngineSupervisor,
        in_flight: Channel[InFlight],
        outlets: list[Outlet],
        clock: Clock,
    ) -> None:
        super().__init__("postprocess")
        self._postprocess = postprocess
        self._engine = engine
        self._in_flight = in_flight
        self._outlets = outlets
        self._clock = clock
        self._monotonic = type(clock) is MonotonicClock
        self._errors = 0  # in a row

    async def fit(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Open the postprocess for a model's tensors, on the stage's thread."""
        await self._blaming(self._call(self._postprocess.open, inputs, outputs), ModelError)

    async def run(self) -> None:
        """Make results until no run is left."""
        watch = RunWatch(self._clock, self._engine.settings.run_timeout_s)
        try:
            while True:
                item = await self._in_flight.get()
                report = await self._await_run(item, watch)
                if report is not None:
                    if not self._monotonic:
                        report = self._on_the_clock(item, report)
                    await self._finish(item, report)
                    self._engine.succeeded()
        except ChannelClosed:
            self._engine.check()
        finally:
            watch.stop()
            for outlet in self._outlets:
                outlet.channel.close()

    async def _await_run(self, item: InFlight, watch: RunWatch) -> RunReport | None:
        """The report of a run; None when it failed or hung, which costs its frames only."""
        try:
            watch.begin(item)
            return await item.run.future
        except SourceError:  # its camera has the error already
            item.drop("failed")
            return None
        except (EngineError, ClosedError) as failure:
            error = failure if isinstance(failure, EngineError) else RunError(str(failure))
        except BaseException:
            item.drop("cancelled")
            raise
        finally:
            watch.end()
        hung = isinstance(error, HungError)
        item.drop("hung" if hung else "failed")
        await self._engine.failed(item.ring, error, hung=hung)
        return None

    def _on_the_clock(self, item: InFlight, report: RunReport) -> RunReport:
        """The run by this pipeline's own clock; the engine knows the machine's only."""
        now = self._clock.now()
        return report._replace(started_ns=item.submitted_ns, finished_ns=now, resize_ns=0)

    async def _finish(self, item: InFlight, report: RunReport) -> None:
        """Decode the frames of one slot and deliver them; the last one gives it back."""
        keeps = self._postprocess.keeps_outputs
        release = item.slot.release
        if keeps and len(item.parts) > 1:
            release = Holders(release, len(item.parts)).release
        made = 0
        try:
            for part in item.parts:
                started = self._clock.now()
                detections = await self._decode(item, made)
                if detections is None:
                    made += 1
                    part.drop("failed")
                    if keeps or made == len(item.parts):
                        release()
                    continue
                stamps = _stamps(item, part, report, started, self._clock.now())
                made += 1
                if not keeps and made == len(item.parts):
                    release()
                result = self._result(item, made - 1, stamps, detections, release)
                await self._deliver(result, part.frame)
        except BaseException:
            for part in item.parts[made:]:
                part.drop("cancelled")
                if keeps:
                    release()
            if not keeps and made < len(item.parts):
                release()
            raise

    async def _decode(self, item: InFlight, index: int) -> Detections | None:
        """The detections; None if the frame was not written or cannot be decoded, and is lost."""
        if item.parts[index].failure is not None:
            return None
        try:
            detections = await self._decoded(item, index)
        except PipelineError as error:
            self._errors += 1
            if self._errors == _MOST_ERRORS:
                raise
            _log.warning("%s; its frame is lost", error, exc_info=True)
            return None
        self._errors = 0
        return detections

    async def _decoded(self, item: InFlight, index: int) -> Detections:
        mapping = item.parts[index].mapping
        assert mapping is not None, "it was not written"
        outputs = _outputs(item, index)
        if not self._postprocess.quick:
            return await self._do(self._postprocess.process, outputs, mapping)
        try:
            return self._postprocess.process(outputs, mapping)
        except self.kind:
            raise
        except (Exception, GeneratorExit) as error:
            raise unexpected(self.kind, self.name, error) from error

    def _result(
        self,
        item: InFlight,
        index: int,
        stamps: Stamps,
        detections: Detections,
        release: Callable[[], None],
    ) -> Result:
        part, keeps = item.parts[index], self._postprocess.keeps_outputs
        frame, mapping, names = part.frame, part.mapping, self._engine.outputs
        assert mapping is not None, "it was not written"

        def give_back() -> None:
            frame.release()
            if keeps:
                release()

        def outputs() -> Sequence[RawOutput]:
            return list(map(RawOutput, names, _outputs(item, index)))

        part.feed.recorder.finished(stamps)
        return Result(
            frame.camera,
            frame.sequence,
            stamps,
            detections,
            mapping,
            frame.view,
            outputs if keeps else tuple,
            Holders(give_back),
        )

    async def _deliver(self, result: Result, frame: Frame) -> None:
        given = 0
        try:
            for outlet in self._outlets:
                given += 1
                await outlet.give(result, frame)
        except BaseException:
            for outlet in self._outlets[given:]:
                outlet.lost()
            raise
        finally:
            result.release()


def _outputs(item: InFlight, index: int) -> Sequence[npt.NDArray[Any]]:
    """The outputs of one frame of a batch; each is made when it is looked at."""
    if item.batch == 1:
        return item.slot.outputs
    return [array[index : index + 1] for array in item.slot.outputs]


def _stamps(item: InFlight, part: BatchItem, report: RunReport, started: int, ended: int) -> Stamps:
    frame = part.frame
    return Stamps(
        frame.captured_ns,
        frame.grabbed_ns,
        frame.retrieved_ns,
        part.started_ns,
        item.submitted_ns + report.resize_ns,
        report.started_ns,
        report.finished_ns,
        started,
        ended,
    )
