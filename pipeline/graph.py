"""The wiring of a pipeline: policies, capacities and buffers, fixed before anything opens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.channel import Overflow
from pipeline.settings import Config
from pipeline.sources import kind_of, overflow_of
from pipeline.sources.synthetic import synthetic_settings

__all__ = ["Graph", "SinkWiring", "build", "frame_buffers"]

# Results that may wait for the program's own loop; the next one to be taken should be fresh.
PROGRAM_QUEUE = 1
_NEEDS_IMAGE = frozenset({"video"})


@dataclass(frozen=True)
class SinkWiring:
    """A sink's name, queue and policy."""

    name: str
    queue: int
    policy: Overflow
    needs_image: bool


@dataclass(frozen=True)
class Graph:
    """``paced``: the source plays by the clock. ``frame_buffers``: enough for every place at
    which a frame can be at once, so that the source never has to wait for a buffer alone.
    """

    camera: str
    paced: bool
    overflow: Overflow
    queue: int
    depth: int
    frame_buffers: int
    sinks: tuple[SinkWiring, ...]

    @property
    def program_policy(self) -> Literal["block", "latest"]:
        """What happens when the program's own loop is slower than the results."""
        return "block" if self.overflow == "block" else "latest"


def build(config: Config, *, live: bool | None = None) -> Graph:
    """The wiring of ``config``; ``live`` overrides what the kind of source tells."""
    source = config.source
    if live is None:
        kind = kind_of(source)
        paced = kind == "synthetic" and synthetic_settings(source).fps is not None
        live = paced or kind in ("camera", "stream")
    overflow = overflow_of(source, live)
    sinks = tuple(
        SinkWiring(
            f"{settings.kind}-{index}",
            settings.queue,
            settings.policy or ("block" if overflow == "block" else "drop_newest"),
            settings.kind in _NEEDS_IMAGE,
        )
        for index, settings in enumerate(config.sinks)
    )
    return Graph(
        source.name,
        live or source.realtime,
        overflow,
        source.queue,
        config.ring.depth,
        frame_buffers(config),
        sinks,
    )


def frame_buffers(config: Config) -> int:
    """Number of frame buffers: one for each place that a frame can be at.

    Captured and waiting, in each slot, waiting for the program and in its hands, and waiting
    for and in each sink that looks at frames; raw results keep their frame with their slot.
    """
    in_sinks = sum(
        sink.queue + 1
        for sink in config.sinks
        if sink.kind in _NEEDS_IMAGE or config.postprocess.kind == "raw"
    )
    return 1 + config.source.queue + config.ring.depth + 1 + PROGRAM_QUEUE + 1 + in_sinks
