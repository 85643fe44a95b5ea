"""Settings that are left to ``auto``: a short probe of the real model when a pipeline opens."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import defaultdict
from typing import NamedTuple

from pipeline.assembly import image_input, located, ring_that_fits
from pipeline.backends import backend
from pipeline.backends.executor import Executor
from pipeline.backends.settings import ModelSettings
from pipeline.choice import Choice, Span, Tried, choose, counts_to_try, figures
from pipeline.errors import ClosedError, ConfigError, EngineError, RunError
from pipeline.graph import ring_depth
from pipeline.ring import Ring
from pipeline.settings import Config
from pipeline.stages.engine import EngineRoom, EngineSettings

__all__ = ["Tuned", "tune"]

_log = logging.getLogger(__name__)

_SECONDS = 1.0  # for all measurements together; opening the model comes on top
_LONGEST = 0.25
_MOST_RUNS = 200  # of one context
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


async def tune(config: Config, abandoned: list[str]) -> Tuned:
    """Try what ``model.contexts`` and ``model.options.threads`` leave open, and choose.

    Numbers of contexts are tried in growing order, each on a newly opened model, until more of
    them are no better. Raises what opening the model or a run raises; ``abandoned`` gets the
    names of threads that hang.
    """
    groups = _groups(config)
    probe = _Probe(config, abandoned, min(_LONGEST, _SECONDS / sum(len(t) for _, t in groups)))
    began = time.monotonic()
    if sum(len(threads) for _, threads in groups) > 1:
        await probe.run(groups)
    took = time.monotonic() - began
    contexts, (threads, *_) = groups[0]
    if probe.tried:
        contexts, threads, *_ = choose(probe.tried, config.model.aim)
    fixed = _fixed(config, contexts, threads)
    choice = Choice(
        config.model.aim, contexts, threads, ring_depth(fixed), took, tuple(probe.tried)
    )
    _log.info("%s", choice)
    return Tuned(fixed, choice, probe.kept)


class _Probe:
    """Tries settings one after another and keeps the executor of the best one open."""

    def __init__(self, config: Config, abandoned: list[str], seconds: float) -> None:
        self.tried: list[Tried] = []
        self.kept: Executor | None = None
        self._config = config
        self._abandoned = abandoned
        self._seconds = seconds

    async def run(self, groups: list[_Group]) -> None:
        try:
            for contexts, threads in groups:
                for number in threads:
                    if not await self._try(contexts, number):
                        return
                if choose(self.tried, self._config.model.aim).contexts < contexts:
                    return  # more are no better, and still more would not be either
        except BaseException:
            await self._keep(None)
            raise

    async def _try(self, contexts: int, threads: int | None) -> bool:
        """Measure one setting; False where the device has no room for so many contexts."""
        model = _with(self._config.model, contexts, threads)
        room = self._room(model)
        try:
            try:
                with located("model"):
                    executor = await room.open()
            except (EngineError, ConfigError) as error:
                if not self.tried:
                    raise
                _log.info("no more than %d contexts: %s", self.tried[-1].contexts, error)
                return False
            assert room.ring is not None
            with located("model"):
                spans = await _measure(room.ring, self._seconds, model.run_timeout_s)
            fps, ms = figures(spans, executor.inputs[0].shape[0] if executor.inputs else 1)
            new = Tried(executor.contexts, threads, fps, ms, sum(map(len, spans)))
            self.tried.append(new)
            if choose(self.tried, model.aim) is new:
                await room.ring.close()
                await self._keep(executor)
            return True
        finally:
            if self.kept is None or room.ring is None or room.executor is not self.kept:
                self._abandoned += await room.close(_CLOSE_SECONDS)

    def _room(self, model: ModelSettings) -> EngineRoom:
        async def make() -> tuple[Executor, Ring]:
            executor = await Executor.from_settings(model, image_input(self._config))
            try:
                if room.closing:
                    raise ClosedError("pipeline: closed")  # nobody waited for it so long
                with located("ring.depth"):
                    # A context with a second slot never waits for the event loop.
                    most = 2 * executor.contexts
                    return executor, await ring_that_fits(executor, most, executor.contexts)
            except BaseException:
                await executor.close(0.5)
                raise

        room = EngineRoom(make, EngineSettings(model.run_timeout_s), lambda state, reason: None)
        return room

    async def _keep(self, executor: Executor | None) -> None:
        before, self.kept = self.kept, executor
        if before is not None:
            await before.close(_CLOSE_SECONDS)


async def _measure(ring: Ring, seconds: float, limit_s: float) -> list[list[Span]]:
    """The runs of each context, back to back in all slots, two of each context at least.

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
            if len(done) >= 2 and (time.monotonic() >= due or len(done) >= _MOST_RUNS):
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
    """What to try, the least contexts first."""
    model = config.model
    cores = len(os.sched_getaffinity(0))
    trials = backend(model.engine).trials(model, cores)
    if model.contexts == "auto":
        set_depth = "depth" in config.ring.model_fields_set and config.ring.depth
        most = min(trials.most_contexts, set_depth if isinstance(set_depth, int) else 64)
        counts = counts_to_try(max(1, most))
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
    if config.model.contexts == "auto" and "depth" not in ring.model_fields_set:
        ring = ring.model_copy(update={"depth": "auto"})
    model = _with(config.model, contexts, threads)
    return config.model_copy(update={"model": model, "ring": ring})
