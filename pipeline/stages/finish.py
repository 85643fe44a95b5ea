"""From finished runs to results, in capture order, and to everybody who wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipeline.channel import Channel, ChannelClosed
from pipeline.clock import Clock
from pipeline.contracts import Postprocess
from pipeline.errors import ClosedError, PipelineError
from pipeline.frame import Image
from pipeline.results import Detections, Lease, RawOutput, Result, Stamps
from pipeline.ring import RunReport
from pipeline.stages.base import Stage
from pipeline.stages.prepare import InFlight
from pipeline.stats import Recorder

__all__ = ["Finish", "Outlet"]


class Outlet(NamedTuple):
    """A receiver of results; ``needs_image`` false: it gets them without the frame."""

    channel: Channel[Result]
    needs_image: bool


class Finish(Stage):
    """Awaits each run in the order of submission, decodes it and hands the result on."""

    def __init__(
        self,
        postprocess: Postprocess,
        names: Sequence[str],
        in_flight: Channel[InFlight],
        outlets: list[Outlet],
        clock: Clock,
        recorder: Recorder,
    ) -> None:
        super().__init__("postprocess")
        self._postprocess = postprocess
        self._names = names
        self._in_flight = in_flight
        self._outlets = outlets
        self._clock = clock
        self._recorder = recorder

    async def run(self) -> None:
        """Make results until no run is left."""
        try:
            while True:
                await self._finish(await self._in_flight.get())
        except ChannelClosed:
            pass
        finally:
            for outlet in self._outlets:
                outlet.channel.close()

    async def _finish(self, item: InFlight) -> None:
        slot_held = True
        try:
            report = await item.run
            started = self._clock.now()
            detections = await self._call(
                self._postprocess.process, list(item.slot.outputs), item.mapping
            )
            stamps = _stamps(item, report, started, self._clock.now())
            slot_held = self._postprocess.keeps_outputs
            if not slot_held:
                item.slot.release()
            result = self._result(item, stamps, detections)
        except BaseException as error:
            if slot_held:
                item.slot.release()
            item.frame.release()
            cause = "failed" if isinstance(error, PipelineError) else "cancelled"
            self._recorder.dropped[cause] += 1
            raise
        self._recorder.finished(stamps)
        try:
            await self._deliver(result)
        finally:
            result.release()

    def _result(self, item: InFlight, stamps: Stamps, detections: Detections) -> Result:
        frame, slot, keeps = item.frame, item.slot, self._postprocess.keeps_outputs

        def give_back() -> None:
            frame.release()
            if keeps:
                slot.release()

        def outputs() -> Sequence[RawOutput]:
            return [RawOutput(*pair) for pair in zip(self._names, slot.outputs, strict=True)]

        return Result(
            frame.camera,
            frame.sequence,
            stamps,
            detections,
            frame.view,
            outputs if keeps else tuple,
            Lease(give_back),
        )

    async def _deliver(self, result: Result) -> None:
        bare = _without_image(result) if not self._postprocess.keeps_outputs else None
        for outlet in self._outlets:
            given = result if outlet.needs_image or bare is None else bare
            given.retain()
            try:
                await outlet.channel.put(given)
            except BaseException:
                given.release()
                raise


def _stamps(item: InFlight, report: RunReport, started: int, ended: int) -> Stamps:
    frame = item.frame
    return Stamps(
        frame.captured_ns,
        frame.grabbed_ns,
        frame.retrieved_ns,
        item.started_ns,
        item.submitted_ns,
        report.started_ns,
        report.finished_ns,
        started,
        ended,
    )


def _without_image(result: Result) -> Result:
    """The same result holding no buffer, for receivers that may lag far behind."""

    def refuse() -> Image:
        raise ClosedError("this receiver asked for results without the frame (needs_image)")

    return Result(result.camera, result.sequence, result.stamps, result.detections, refuse, tuple)
