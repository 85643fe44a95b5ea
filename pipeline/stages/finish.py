"""From finished runs to results, in capture order, and to everybody who wants them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy.typing as npt

from pipeline.channel import Channel, ChannelClosed
from pipeline.clock import Clock
from pipeline.contracts import Postprocess
from pipeline.errors import ClosedError, EngineError, RunError
from pipeline.frame import Image
from pipeline.results import Detections, Lease, RawOutput, Result, Stamps
from pipeline.ring import RunReport, Slot
from pipeline.stages.base import Stage
from pipeline.stages.dispatch import InFlight, Placed
from pipeline.stages.engine import EngineRoom

__all__ = ["Finish", "Outlet"]


@dataclass
class Outlet:
    """A receiver of results; ``needs_image`` false: it gets them without the frame.

    ``slots``: those that it keeps, each with the number of its results, where results lend them.
    """

    channel: Channel[Result]
    needs_image: bool
    slots: Counter[Slot] = field(default_factory=Counter)


class Finish(Stage):
    """Awaits each run in the order of submission, decodes it and hands the results on."""

    def __init__(
        self,
        postprocess: Postprocess,
        engine: EngineRoom,
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

    async def run(self) -> None:
        """Make results until no run is left."""
        try:
            while True:
                item = await self._in_flight.get()
                report = await self._await_run(item)
                if report is not None:
                    await self._finish(item, report)
                    self._engine.succeeded()
        except ChannelClosed:
            self._engine.check()
        finally:
            for outlet in self._outlets:
                outlet.channel.close()

    async def _await_run(self, item: InFlight) -> RunReport | None:
        """The report of a run; None when it failed or hung, which costs its frames only."""
        limit = self._engine.settings.run_timeout_s
        left = limit - (self._clock.now() - item.submitted_ns) / 1e9
        try:
            if not item.run.done():
                await asyncio.wait({item.run}, timeout=max(0.0, left))
            if item.run.done():
                return item.run.result()
            error: EngineError = RunError(f"a run took longer than {limit:g} s")
            hung = True
        except (EngineError, ClosedError) as failure:
            error = failure if isinstance(failure, EngineError) else RunError(str(failure))
            hung = False
        except BaseException:
            item.drop("cancelled")
            raise
        item.drop("hung" if hung else "failed")
        await self._engine.failed(item.ring, error, hung=hung)
        return None

    async def _finish(self, item: InFlight, report: RunReport) -> None:
        """Decode the frames of one slot and deliver them."""
        keeps = self._postprocess.keeps_outputs
        slot = Lease(item.slot.release)
        waiting = list(item.placed)
        try:
            arrays = list(item.slot.outputs)
            while waiting:
                placed = waiting[0]
                mine = _part(arrays, len(item.placed) - len(waiting), item)
                started = self._clock.now()
                detections = await self._call(self._postprocess.process, mine, placed.mapping)
                stamps = _stamps(item, placed, report, started, self._clock.now())
                del mine
                waiting.pop(0)
                if not waiting:
                    del arrays
                    if not keeps:
                        slot.release()
                await self._deliver(self._result(item, placed, stamps, detections, slot), item)
        except BaseException:
            for placed in waiting:
                placed.drop("cancelled")
            if waiting and not keeps:
                slot.release()
            raise
        finally:
            if keeps:
                slot.release()

    def _result(
        self, item: InFlight, placed: Placed, stamps: Stamps, detections: Detections, slot: Lease
    ) -> Result:
        frame, keeps = placed.frame, self._postprocess.keeps_outputs
        names = [spec.name for spec in self._engine.executor.outputs]
        index = item.placed.index(placed)
        if keeps:
            slot.retain()

        def give_back() -> None:
            frame.release()
            if keeps:
                slot.release()

        def outputs() -> Sequence[RawOutput]:
            arrays = _part(list(item.slot.outputs), index, item)
            return [RawOutput(*pair) for pair in zip(names, arrays, strict=True)]

        placed.feed.recorder.finished(stamps)
        return Result(
            frame.camera,
            frame.sequence,
            stamps,
            detections,
            frame.view,
            outputs if keeps else tuple,
            Lease(give_back),
        )

    async def _deliver(self, result: Result, item: InFlight) -> None:
        keeps = self._postprocess.keeps_outputs
        bare = None if keeps else _without_image(result)
        try:
            for outlet in self._outlets:
                given = result if outlet.needs_image or bare is None else bare
                given.retain()
                full = False
                if keeps and outlet.channel.policy != "block":
                    full = not _may_keep(outlet, item, self._outlets)
                    given = _lent(outlet, item.slot, given)
                try:
                    await outlet.channel.put(given, full=full)
                except ChannelClosed:
                    given.release()  # this receiver takes nothing any more
                except BaseException:
                    given.release()
                    raise
        finally:
            result.release()


def _may_keep(outlet: Outlet, item: InFlight, outlets: list[Outlet]) -> bool:
    """Whether a receiver that may lag can keep one more slot.

    Together such receivers leave one slot to the engine, so that none of them stalls it, and to
    each other an equal share of the rest, so that none starves.
    """
    if item.slot in outlet.slots:
        return True
    lagging = [one for one in outlets if one.channel.policy != "block"]
    spare = item.ring.depth - 1
    share = max(1, spare // len(lagging))
    kept = len(outlet.slots) + 1
    reserved = sum(max(share, len(one.slots)) for one in lagging if one is not outlet)
    return kept <= share or kept + reserved <= spare


def _lent(outlet: Outlet, slot: Slot, result: Result) -> Result:
    """The same result, with a note at the outlet for as long as it has it."""
    outlet.slots[slot] += 1

    def give_back() -> None:
        outlet.slots[slot] -= 1
        if not outlet.slots[slot]:
            del outlet.slots[slot]
        result.release()

    return replace(result, _lease=Lease(give_back))


def _part(arrays: list[npt.NDArray[Any]], index: int, item: InFlight) -> list[npt.NDArray[Any]]:
    """The outputs of one frame of a batch."""
    if item.batch == 1:
        return arrays
    return [array[index : index + 1] for array in arrays]


def _stamps(item: InFlight, placed: Placed, report: RunReport, started: int, ended: int) -> Stamps:
    frame = placed.frame
    return Stamps(
        frame.captured_ns,
        frame.grabbed_ns,
        frame.retrieved_ns,
        placed.started_ns,
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
