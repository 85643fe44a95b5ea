"""The stages behind the source, each alone, on the objects that a pipeline opens."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy.typing as npt

from pipeline.bench.figures import EngineFigures, InferFigures, StageFigures
from pipeline.bench.meter import Conditions, Meter, on_thread, repeat
from pipeline.bench.readers import Replay
from pipeline.config.settings import Config
from pipeline.errors import Abandoned, AllocationError, PipelineError, RunError
from pipeline.flow.stats import Recorder
from pipeline.machine import wiring
from pipeline.machine.assembly import Assembly
from pipeline.machine.own_parts import with_objects
from pipeline.memory.frame import FrameFormat, Image
from pipeline.memory.ring import Ring, Slot

__all__ = ["parts_alone"]

_CLOSE_SECONDS = 5.0
Array = npt.NDArray[Any]


async def parts_alone(
    config: Config, found: FrameFormat, frames: Sequence[Image], conditions: Conditions
) -> EngineFigures:
    """Preprocess, infer with 1, 2, ... contexts, and postprocess, on these frames.

    A context has two slots where there is memory for that, so that it never waits for the
    event loop. Raises what opening a pipeline raises, and RunError when a run fails or hangs.
    """
    depth = wiring.ring_depth(config)
    wanted = min(256, max(depth, 2 * config.model.context_count()))
    try:
        return await _measured(_of_depth(wanted, config), found, frames, conditions)
    except AllocationError:
        if wanted == depth:
            raise
        return await _measured(config, found, frames, conditions)


def _of_depth(depth: int, config: Config) -> Config:
    return config.model_copy(update={"ring": config.ring.model_copy(update={"depth": depth})})


async def _measured(
    config: Config, found: FrameFormat, frames: Sequence[Image], conditions: Conditions
) -> EngineFigures:
    name = next(iter(config.sources))
    replay = Replay(frames, conditions.clock, found=found)
    config = with_objects(config, {name: replay})
    wired = wiring.build(config)
    parts = Assembly(config, wired, conditions.clock, Recorder())
    parts.add_camera(wired.cameras[0], config.sources[name])
    try:
        await parts.open()
        alone = _Parts(parts, name, frames, conditions)
        preprocess = await alone.preprocess()
        contexts = range(1, parts.engine.executor.contexts + 1)
        infer = [await alone.infer(count) for count in contexts]
        postprocess = await alone.postprocess()
        executor = parts.engine.executor
        precision = executor.notes().get("precision")
        device = executor.device if precision is None else f"{executor.device} in {precision}"
        return EngineFigures(
            executor.engine, device, alone.batch, preprocess, tuple(infer), postprocess
        )
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # which hold arrays over the memory
        raise
    finally:
        # What closing raises does not change what was measured, or why it was not.
        stuck, _ = await parts.close(_CLOSE_SECONDS)
        conditions.abandoned.extend(stuck)


class _Parts:
    """One engine that is open, its ring, and the parts before and behind it."""

    def __init__(
        self, parts: Assembly, camera: str, frames: Sequence[Image], conditions: Conditions
    ) -> None:
        ring = parts.engine.ring
        assert ring is not None
        self._ring: Ring = ring
        self._contexts = parts.engine.executor.contexts
        self.batch: int = parts.engine.executor.inputs[0].shape[0]
        self._timeout = parts.config.model.run_timeout_s
        self._preprocess = parts.preprocess(camera)
        self._postprocess = parts.postprocess
        self._frames = frames
        self._conditions = conditions

    async def preprocess(self) -> StageFigures:
        """Frames into the slots' inputs; afterwards there is one in every index."""
        slots = await self._all_slots()
        try:
            frames = itertools.cycle(self._frames)
            # A view keeps its slot, so they live no longer than this call.
            jobs = [
                functools.partial(self._preprocess.process, next(frames), target, index)
                for slot in slots
                for index, (target,) in enumerate(
                    self._by_frame([slot.inputs[0]]), slot.index * self.batch
                )
            ]
            return await self._alone("preprocess", jobs)
        finally:
            _release(slots)

    async def infer(self, contexts: int) -> InferFigures:
        """Runs on what is in the slots, with the slots of the first ``contexts`` contexts."""
        self._conditions.report(f"infer with {contexts} of {self._contexts} contexts")
        slots = await self._all_slots()
        held = [slot for slot in slots if slot.context >= contexts]
        _release(slot for slot in slots if slot.context < contexts)
        lanes = range(len(slots) - len(held))
        seconds = self._conditions.seconds
        try:
            async with self._within(seconds):
                await asyncio.gather(*(self._run(None) for _ in lanes))
                meter = Meter(seconds)
                await asyncio.gather(*(self._run(meter) for _ in lanes))
        finally:
            _release(held)
        frames = meter.count * self.batch
        return InferFigures(
            meter.count,
            meter.histogram.milliseconds(),
            meter.cpu_ns / 1e6 / frames,
            frames / meter.wall_ns * 1e9,
            contexts,
        )

    async def _run(self, meter: Meter | None) -> None:
        """One run after another until it is enough; a single one without a meter."""
        while True:
            async with self._ring.slot() as slot:
                report = await slot.submit()
            if meter is None:
                return
            meter.record(report.finished_ns - report.started_ns)
            if meter.enough:
                return

    async def postprocess(self) -> StageFigures:
        """Decode the outputs of real frames."""
        slots = await self._all_slots()
        try:
            async with self._within(0):
                await asyncio.gather(*(slot.submit() for slot in slots))
            process, mapping = self._postprocess.process, self._preprocess.mapping
            jobs = [
                functools.partial(process, outputs, mapping)
                for slot in slots
                for outputs in self._by_frame(list(slot.outputs))
            ]
            return await self._alone("postprocess", jobs)
        finally:
            _release(slots)

    def _by_frame(self, arrays: list[Array]) -> Iterator[list[Array]]:
        """The part of each frame of a batch."""
        if self.batch == 1:
            yield arrays
            return
        for index in range(self.batch):
            yield [array[index : index + 1] for array in arrays]

    async def _all_slots(self) -> list[Slot]:
        return [await self._ring.acquire() for _ in range(self._ring.depth)]

    @contextlib.asynccontextmanager
    async def _within(self, seconds: float) -> AsyncIterator[None]:
        """RunError when runs take so long that one of them must hang."""
        try:
            # A run may wait for those in its context's other slots.
            async with asyncio.timeout(seconds + self._ring.depth * self._timeout):
                yield
        except TimeoutError:
            raise RunError(f"a run took longer than {self._timeout:g} s", ("model",)) from None

    async def _alone(self, name: str, jobs: Sequence[Callable[[], object]]) -> StageFigures:
        """Call the jobs in turn on a thread of their own; each once before the time counts."""
        stop = threading.Event()

        def measure() -> StageFigures | None:
            for job in jobs:
                job()
            turn = itertools.cycle(jobs)

            def step() -> int:
                job = next(turn)
                began = time.monotonic_ns()
                job()
                return time.monotonic_ns() - began

            return repeat(step, self._conditions.seconds, stop)

        self._conditions.report(name)
        figures = await on_thread(
            Abandoned(PipelineError, name), measure, stop.set, self._conditions.abandoned
        )
        if figures is None:
            raise PipelineError(f"{name}: stopped before anything was measured")
        return figures


def _release(slots: Iterable[Slot]) -> None:
    for slot in slots:
        slot.release()
