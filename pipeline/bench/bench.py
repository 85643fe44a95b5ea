"""All measurements of a configuration, in order."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from pipeline.bench.cpu_load import CpuLoad
from pipeline.bench.decode import Decoded, decode_alone
from pipeline.bench.figures import (
    EngineFigures,
    Report,
    WholeFigures,
    middle,
    middle_of_parts,
)
from pipeline.bench.meter import Conditions
from pipeline.bench.parts import parts_alone
from pipeline.bench.readers import Paced, Replay, as_file, has_own_pace, own_fps
from pipeline.bench.whole import whole
from pipeline.config.settings import Config
from pipeline.contracts import Reader
from pipeline.engines.autotune_choice import Choice
from pipeline.errors import Abandoned
from pipeline.machine.assembly import at_source
from pipeline.machine.autotune import tune
from pipeline.machine.own_parts import import_in_thread
from pipeline.sources import SourceSettings, make_reader
from pipeline.text import shown

__all__ = ["Bench"]

_OVERLOAD = 10.0


class _Round(NamedTuple):
    decoded: Decoded
    parts: EngineFigures
    offline: WholeFigures


class Bench:
    """Measures the first source of ``config`` with the model, each part and the whole.

    Each measurement takes ``seconds``; ``rate`` is that of the live run, by default half of
    what was reached offline, but not more than the source's own. ``report_progress`` is called
    with what is being measured. With ``rounds`` the parts and the whole are measured in turn, so
    often, and each figure is the median one. ``abandoned`` has the parts that hung; ``config`` is
    what was measured, without anything that is ``auto``.
    """

    def __init__(
        self,
        config: Config,
        seconds: float,
        rate: float | None,
        report_progress: Callable[[str], None],
        rounds: int = 1,
    ) -> None:
        self._conditions = Conditions(seconds, report_progress)
        self.name = next(iter(config.sources))
        self.config = config
        self._rate = rate
        self._rounds = rounds

    @property
    def _source(self) -> SourceSettings:
        return self.config.sources[self.name]

    @property
    def _own_pace(self) -> bool:
        return has_own_pace(self._source)

    @property
    def abandoned(self) -> list[Abandoned]:
        """Parts that hung and were given up."""
        return self._conditions.abandoned

    async def run(self) -> Report:
        """Measure. Raises what opening and running a pipeline raises."""
        self.config = await import_in_thread(self.config)
        choice = await self._tune()
        others = CpuLoad()
        rounds = [await self._round() for _ in range(self._rounds)]
        decoded = rounds[0].decoded
        offline = middle([each.offline for each in rounds])
        rate = self._live_rate(decoded, offline.fps)
        at = "its own rate" if rate is None else f"{shown(rate)} fps"
        self._conditions.report(f"the whole, live at {at}")
        live = await whole(self._live(), self._paced(rate), self._conditions, live=True)
        offered = _OVERLOAD * offline.fps
        self._conditions.report(f"the whole, live at {shown(offered)} fps")
        flood = Replay(decoded.frames, self._conditions.clock, offered, decoded.format)
        overload = await whole(self._live(), flood, self._conditions, live=True)
        width, height = decoded.format[:2]
        return Report(
            self.name,
            (width, height),
            len(os.sched_getaffinity(0)),
            self._own_pace,
            middle([each.decoded.figures for each in rounds]),
            middle_of_parts([each.parts for each in rounds]),
            offline,
            rate,
            live,
            overload,
            others.cores(),
            tuple(self._notes()),
            choice,
        )

    async def _tune(self) -> Choice | None:
        """Choose the settings that are ``auto`` once, so that all runs here use the same."""
        if not self.config.model.measured:
            return None
        self._conditions.report("the settings that are auto")
        self.config, choice, executor = await tune(self.config, self.abandoned)
        if executor is not None:
            await executor.close()
        return choice

    async def _round(self) -> _Round:
        """The parts, and the whole at full speed."""
        decoded = await self._decode()
        config = self._only(overflow="block", max_fps=None, max_age_ms=None)
        parts = await parts_alone(config, decoded.format, decoded.frames, self._conditions)
        self._conditions.report("the whole, at full speed")
        replayed = None
        if self._own_pace:
            clock = self._conditions.clock
            replayed = Replay(decoded.frames, clock, found=decoded.format)
        offline = await whole(config, replayed or self._reader(), self._conditions)
        return _Round(decoded, parts, offline)

    async def _decode(self) -> Decoded:
        source = self._source
        limit = None
        if self._own_pace:
            limit = source.open_timeout_s + 4 * source.read_timeout_s + 2 * self._conditions.seconds
        with at_source(self.config, self.name):
            reader = self._reader()
            return await decode_alone(
                reader, self._conditions, own_pace=self._own_pace, timeout=limit
            )

    def _reader(self) -> Reader:
        source = self._source if self._own_pace else as_file(self._source)
        return make_reader(source, self._conditions.clock)

    def _paced(self, rate: float | None) -> Reader | None:
        """The source at the rate; None for a camera, which is opened as always."""
        if rate is None:
            return None
        return Paced(self._reader(), self._conditions.clock, rate)

    def _live_rate(self, decoded: Decoded, reached: float) -> float | None:
        if self._own_pace:
            return None
        own = own_fps(self._source) or decoded.format.fps
        return self._rate or min(reached / 2, own or reached / 2)

    def _live(self) -> Config:
        overflow = "drop_newest" if self._source.overflow == "drop_newest" else "latest"
        return self._only(overflow=overflow, max_fps=None, max_age_ms=None)

    def _only(self, **changes: object) -> Config:
        """The configuration with this one source, changed, and without sinks."""
        source: SourceSettings = self._source.model_copy(update={"realtime": False, **changes})
        one = {"source": source} if self.config.source else {"cameras": {self.name: source}}
        return self.config.model_copy(update={**one, "sinks": ()})

    def _notes(self) -> list[str]:
        notes = []
        if len(self.config.sources) > 1:
            notes.append(f"of {len(self.config.sources)} cameras only {self.name!r} was measured")
        if self._own_pace:
            notes.append(
                "the source has its own pace: decode is the time from capture to the decoded "
                "image, the live run is at that pace, and the limit, the run at full speed and "
                "the overload use frames from memory, without decoding"
            )
            if self._rate is not None:
                notes.append("--rate was ignored, as the source has its own")
        return notes
