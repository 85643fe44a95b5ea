"""The wiring of a pipeline: policies, capacities and buffers, fixed before anything opens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.config.settings import Config
from pipeline.flow.channel import Overflow
from pipeline.sources import SourceSettings, kind_of, overflow_of, queue_of
from pipeline.sources.synthetic import synthetic_settings

__all__ = [
    "PROGRAM_QUEUE",
    "CameraWiring",
    "SinkWiring",
    "Wiring",
    "automatic_depth",
    "build",
    "camera_wiring",
    "ring_depth",
]

# Results that may wait for the program's own loop; the next one to be taken should be fresh.
PROGRAM_QUEUE = 1
_MOST_SLOTS = 256


@dataclass(frozen=True)
class CameraWiring:
    """Settings for reading one camera.

    ``supervised``: it is reopened when lost. ``paced``: it plays by the clock. ``buffers``: frame
    buffers, enough for every place at which a frame of it can be at once.
    """

    name: str
    supervised: bool
    paced: bool
    wait_at_start: bool
    overflow: Overflow
    queue: int
    buffers: int


@dataclass(frozen=True)
class SinkWiring:
    """A sink's name, queue and overflow."""

    name: str
    queue: int
    overflow: Overflow
    needs_image: bool


@dataclass(frozen=True)
class Wiring:
    """Cameras in the order of the configuration, the ring's depth, and the sinks.

    ``least_depth``: smallest acceptable depth if ``depth`` does not fit in memory.
    """

    cameras: tuple[CameraWiring, ...]
    depth: int
    least_depth: int
    sinks: tuple[SinkWiring, ...]

    @property
    def needs_images(self) -> bool:
        """True if a sink needs every frame's image, so that all are kept as BGR."""
        return any(sink.needs_image for sink in self.sinks)

    @property
    def program_overflow(self) -> Literal["block", "latest"]:
        """Overflow of the program's own loop, when it is slower than the results."""
        return "block" if _all_block(self.cameras) else "latest"


def build(config: Config) -> Wiring:
    """The wiring of ``config``."""
    cameras = tuple(camera_wiring(config, *each) for each in config.sources.items())
    sinks = tuple(
        SinkWiring(
            f"{settings.kind}-{index}",
            settings.queue,
            settings.overflow or ("block" if _all_block(cameras) else "drop_newest"),
            settings.needs_image,
        )
        for index, settings in enumerate(config.sinks)
    )
    depth = ring_depth(config)
    least = config.model.context_count() if automatic_depth(config) else depth
    return Wiring(cameras, depth, least, sinks)


def automatic_depth(config: Config) -> bool:
    """True if the number of slots follows that of contexts."""
    left_out = "depth" not in config.ring.model_fields_set
    return config.ring.depth == "auto" or (left_out and config.model.contexts == "auto")


def ring_depth(config: Config) -> int:
    """The number of slots; with one context where their number is still to be measured.

    Automatically, for throughput: each context has a slot that runs and one that is ready, one is
    filled and one is decoded. For latency none waits to be run. Raw results keep their slots, so
    there are more for those in the program's hands, waiting for it, and in each sink.
    """
    depth, model = config.ring.depth, config.model
    if depth != "auto" and not automatic_depth(config):
        return depth
    count = model.context_count()
    busy = count if model.aim == "latency" else 2 * count
    kept = 1 + PROGRAM_QUEUE + len(config.sinks) if config.postprocess.kind == "raw" else 0
    each = -(-(busy + 2 + kept) // count)  # a slot is one context's, so they get equally many
    return min(_MOST_SLOTS, each * count)


def camera_wiring(config: Config, name: str, source: SourceSettings) -> CameraWiring:
    """The wiring of one camera."""
    kind = kind_of(source)
    if kind == "own":
        live, supervised = source.comes_live, source.comes_live and source.reopenable
    else:
        url = kind == "stream" and source.live is not False
        supervised = url or kind in ("camera", "gstreamer")
        paced = kind == "synthetic" and synthetic_settings(source).fps is not None
        live = supervised or paced
    overflow = overflow_of(source, live)
    queue = queue_of(source, overflow)
    # One of several cameras must not keep the others from starting.
    beside_others = name in config.cameras and len(config.cameras) > 1
    at_start = "wait" if supervised and (kind == "stream" or beside_others) else "fail"
    return CameraWiring(
        name,
        supervised,
        live or source.realtime,
        (source.at_start or at_start) == "wait",
        overflow,
        queue,
        _frame_buffers(config, queue),
    )


def _frame_buffers(config: Config, queue: int) -> int:
    """One buffer for each place that a frame can be at.

    Captured and waiting, in each slot, waiting for the program and in its hands, and waiting
    for and in each sink that looks at frames; raw results keep their frame with their slot.
    """
    in_sinks = sum(
        sink.queue + 1
        for sink in config.sinks
        if sink.needs_image or config.postprocess.kind == "raw"
    )
    return 1 + queue + ring_depth(config) + 1 + PROGRAM_QUEUE + 1 + in_sinks


def _all_block(cameras: tuple[CameraWiring, ...]) -> bool:
    return all(camera.overflow == "block" for camera in cameras)
