"""Settings that are left to ``auto``: a short probe of the real model when a pipeline opens."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections import defaultdict
from typing import NamedTuple

from pipeline.config.settings import Config
from pipeline.engines import engine_module
from pipeline.engines.autotune_choice import Choice, Span, Tried, choose, counts_to_try, figures
from pipeline.engines.executor import Executor
from pipeline.engines.settings import ModelSettings
from pipeline.errors import Abandoned, ClosedError, ConfigError, EngineError, RunError
from pipeline.flow.engine_supervisor import EngineSettings, EngineSupervisor
from pipeline.machine.assembly import at_model, image_input, ring_that_fits
from pipeline.machine.wiring import automatic_depth, ring_depth
from pipeline.memory.ring import Ring

__all__ = ["Tuned", "tune"]

_log = logging.getLogger(__name__)

_SECONDS = 1.0  # for all measurements together; opening the model comes on top
_LONGEST = 0.2
_ROUNDS = 3
_LEAST_RUNS = 3  # of one context; the first does not count
_MOST_RUNS = 200
_CLOSE_SECONDS = 1.0

# Contexts, and what is to be tried as options.threads with them; None leaves that as it is.
_Group = tuple[int, tuple[int | None, ...]]


class Tuned(NamedTuple):
    """A configuration without anything left to measure, and why it is this one.

    ``executor`` is the chosen one where it is still open, for the pipeline to go on with.
    """

    config: Config
    choice: Choice
    executor: Executor | None


async def tune(config: Config, abandoned: list[Abandoned]) -> Tuned:
    """Try what ``model.contexts`` and ``model.options.threads`` leave open, and choose.

    Numbers of contexts are tried in growing order, each on a newly opened model, until more of
    them are no better; for latency one is enough, and only threads are tried. Raises what
    opening the model or a run raises; ``abandoned`` gets the parts that hang.
    """
    groups = _groups(config)
    probe = _Probe(config, abandoned, min(_LONGEST, _SECONDS / sum(len(t) for _, t in groups)))
    began = time.monotonic()
    if sum(len(threads) for _, threads in groups) > 1:
        await probe.run(groups)
    executor = await probe.take()
    took = time.monotonic() - began
    contexts, (threads, *_) = groups[0]
    if probe.tried:
        contexts, threads, *_ = choose(probe.tried, config.model.aim)
    fixed = _fixed(config, contexts, threads)
    choice = Choice(
        config.model.aim, contexts, threads, ring_depth(fixed), took, tuple(probe.tried)
    )
    _log.info("%s", choice)
    return Tuned(fixed, choice, executor)


class _Candidate:
    """A setting on an open model, and the best of its figures so far."""

    def __init__(self, room: EngineSupervisor, threads: int | None) -> None:
        assert room.ring is not None
        self.room = room
        self.executor, self.ring = room.executor, room.ring
        self.tried = Tried(self.executor.contexts, threads, 0.0, math.inf, 0)

    async def measure(self, seconds: float) -> None:
        """Measure once more, for ``seconds``. Raises what a run raises."""
        with at_model():
            spans = await _measure(self.ring, seconds, self.room.settings.run_timeout_s)
        inputs = self.executor.inputs
        fps, ms = figures(spans, inputs[0].shape[0] if inputs and inputs[0].shape else 1)
        self.tried = self.tried.better(self.tried._replace(fps=fps, ms=ms, runs=_count(spans)))


class _Probe:
    """Tries settings one after another, each in turn with the best one so far, which stays open."""

    def __init__(self, config: Config, abandoned: list[Abandoned], seconds: float) -> None:
        self._config = config
        self._abandoned = abandoned
        self._seconds = seconds
        self._best: _Candidate | None = None
        self._others: list[Tried] = []

    @property
    def tried(self) -> list[Tried]:
        """All figures, those of the settings with the least contexts first."""
        best = [] if self._best is None else [self._best.tried]
        return sorted(self._others + best, key=lambda each: (each.contexts, each.threads or 0))

    async def run(self, groups: list[_Group]) -> None:
        """Try groups until more contexts are no better."""
        try:
            for contexts, threads in groups:
                for number in threads:
                    if not await self._try(contexts, number):
                        return
                if choose(self.tried, self._config.model.aim).contexts < contexts:
                    return  # still more would not be better either
        except BaseException:
            await self._drop(self._best)
            raise

    async def take(self) -> Executor | None:
        """The executor of the best one, for others to use and close."""
        if self._best is None:
            return None
        best = choose(self.tried, self._config.model.aim) == self._best.tried
        if not (best and self._best.executor.rebinds):
            # Others were better after all; or another ring would cost the device more memory.
            await self._drop(self._best)
            return None
        try:
            await self._best.ring.close()
        except BaseException:
            await self._drop(self._best)
            raise
        return self._best.executor

    async def _try(self, contexts: int, threads: int | None) -> bool:
        """Measure one setting; False where the device has no room for so many contexts."""
        room = self._room(_with(self._config.model, contexts, threads))
        try:
            await room.open()
        except (EngineError, ConfigError) as error:
            if self._best is None:
                raise
            _log.info("%d contexts cannot be opened: %s", contexts, error)
            return False
        except BaseException:
            self._abandoned += await room.close(_CLOSE_SECONDS)
            raise
        new = _Candidate(room, threads)
        try:
            await self._compare(new)
        except BaseException:
            await self._drop(new)
            raise
        await self._keep_better(new)
        return True

    async def _compare(self, new: _Candidate) -> None:
        """Measure it and the best one in turn, while there is time; a slow one only once."""
        due = time.monotonic() + self._seconds
        await new.measure(self._seconds / _ROUNDS)
        for _ in range(1, _ROUNDS):
            if time.monotonic() >= due:
                return
            if self._best is not None:
                await self._best.measure(self._seconds / _ROUNDS)
            await new.measure(self._seconds / _ROUNDS)

    async def _keep_better(self, new: _Candidate) -> None:
        both = [new.tried] + ([] if self._best is None else [self._best.tried])
        worse = new if choose(both, self._config.model.aim) != new.tried else self._best
        if worse is not new:
            self._best = new
        if worse is not None:
            self._others.append(worse.tried)
            await self._drop(worse)

    async def _drop(self, candidate: _Candidate | None) -> None:
        if candidate is not None:
            self._abandoned += await candidate.room.close(_CLOSE_SECONDS)

    def _room(self, model: ModelSettings) -> EngineSupervisor:
        async def make() -> tuple[Executor, Ring]:
            with at_model():
                executor = await Executor.from_settings(model, image_input(self._config))
            try:
                if room.closing:
                    raise ClosedError("pipeline: closed")  # nobody waited for it so long
                # A context with a second slot never waits for the event loop.
                most = 2 * executor.contexts
                least = executor.contexts
                return executor, await ring_that_fits(executor, most, least, logging.DEBUG)
            except BaseException:
                await executor.close(0.5)
                raise

        room = EngineSupervisor(
            make, EngineSettings(model.run_timeout_s), lambda state, reason: None
        )
        return room


def _count(spans: list[list[Span]]) -> int:
    return sum(len(runs) for runs in spans)


async def _measure(ring: Ring, seconds: float, limit_s: float) -> list[list[Span]]:
    """The runs of each context, back to back in all slots, a few of each at least.

    RunError when one fails or takes so long that it must hang.
    """
    spans: dict[int, list[Span]] = defaultdict(list)
    due = time.monotonic() + seconds

    async def lane() -> None:
        while True:
            async with ring.slot() as slot:
                report = await slot.submit()
                done = spans[slot.context]
                done.append((report.started_ns, report.finished_ns))
            if len(done) >= _LEAST_RUNS and (time.monotonic() >= due or len(done) >= _MOST_RUNS):
                return

    lanes = {asyncio.create_task(lane()) for _ in range(ring.depth)}
    try:
        # A run may wait for that in its context's other slot.
        done, late = await asyncio.wait(
            lanes, timeout=seconds + 2 * limit_s, return_when=asyncio.FIRST_EXCEPTION
        )
        for each in done:
            each.result()
        if late:
            raise RunError(f"a run took longer than {limit_s:g} s")
    finally:
        for each in lanes:
            each.cancel()
        await asyncio.wait(lanes)
    return list(spans.values())


def _groups(config: Config) -> list[_Group]:
    """Candidates, the fewest contexts first."""
    model = config.model
    cores = len(os.sched_getaffinity(0))
    trials = engine_module(model.engine).trials(model, cores)
    if model.contexts == "auto" and model.aim == "latency":
        counts = [1]  # no run gets shorter by others at the same time
    elif model.contexts == "auto":
        # Each context needs a slot.
        slots = 64 if automatic_depth(config) else ring_depth(config)
        counts = counts_to_try(max(1, min(trials.most_contexts, slots)))
    else:
        counts = [model.contexts]
    if model.options.get("threads") != "auto" or trials.threads is None:
        return [(count, (None,)) for count in counts]
    return [(count, tuple(dict.fromkeys(trials.threads(count)))) for count in counts]


def _with(model: ModelSettings, contexts: int, threads: int | None) -> ModelSettings:
    options = {key: value for key, value in model.options.items() if (key, value) != _AUTO_THREADS}
    if threads is not None:
        options["threads"] = threads
    return model.model_copy(update={"contexts": contexts, "options": options})


_AUTO_THREADS = ("threads", "auto")


def _fixed(config: Config, contexts: int, threads: int | None) -> Config:
    """The configuration with these in place of ``auto``."""
    ring = config.ring
    if automatic_depth(config):
        ring = ring.model_copy(update={"depth": "auto"})
    model = _with(config.model, contexts, threads)
    return config.model_copy(update={"model": model, "ring": ring})
