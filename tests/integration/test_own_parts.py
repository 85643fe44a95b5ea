"""Sinks and a postprocess that a program gives as objects."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
import pytest

from pipeline import (
    Abandoned,
    ClosedError,
    ConfigError,
    Detections,
    FrameFormat,
    FrameMapping,
    ModelError,
    Pipeline,
    PipelineError,
    Result,
    RunError,
    SinkError,
    SourceError,
    StreamInfo,
)

pytestmark = pytest.mark.usefixtures("no_leak")

FRAMES = 20
LABELS = ("person",)


def config(**changes: Any) -> dict[str, Any]:
    """A short synthetic source on the simulated engine."""
    return {
        "source": {"uri": f"synthetic:?frames={FRAMES}&width=64&height=48"},
        "model": {"engine": "simulated"},
        **changes,
    }


class Robot:
    """Remembers each call and the thread that made it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.labels: list[tuple[str, ...]] = []

    def _called(self, name: str) -> None:
        self.calls.append(name)
        self.threads.add(threading.get_ident())

    def open(self, stream: StreamInfo) -> None:
        """One camera, of a known size."""
        assert stream.format is not None
        self._called("open")

    def write(self, result: Result) -> None:
        """One result."""
        self._called("write")
        self.labels.append(tuple(each.label for each in result.detections))

    def close(self) -> None:
        """The end."""
        self._called("close")


class OnePerson:
    """Sees one person in each frame, at the same place of the model's input."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.shapes: list[tuple[int, ...]] = []

    def open(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Any model fits."""
        self.threads.add(threading.get_ident())
        self.shapes = [tuple(spec.shape) for spec in outputs]

    def process(self, outputs: Sequence[Any], mapping: FrameMapping) -> Detections:
        """One box, in frame pixels."""
        self.threads.add(threading.get_ident())
        assert [output.shape for output in outputs] == self.shapes
        corners = mapping.to_frame(np.array([[10.0, 10.0], [20.0, 20.0]], np.float32))
        return Detections(
            corners.reshape(1, 4).astype(np.float32),
            np.array([0.9], np.float32),
            np.array([0], np.int32),
            np.empty((1, 0, 2), np.float32),
            LABELS,
        )


async def test_a_sink_and_a_postprocess_of_one_s_own_get_everything_on_their_threads() -> None:
    robot, eyes = Robot(), OnePerson()
    async with Pipeline(config(), postprocess=eyes, sinks=[robot]) as pipeline:
        async for result in pipeline:
            assert [(each.label, round(each.score, 3)) for each in result.detections] == [
                ("person", 0.9)
            ]
    assert robot.calls == ["open", *["write"] * FRAMES, "close"]
    assert robot.labels == [LABELS] * FRAMES
    assert (len(robot.threads), len(eyes.threads)) == (1, 1)
    assert threading.get_ident() not in robot.threads | eyes.threads


async def test_only_write_and_process_are_needed_and_the_image_comes_if_asked_for() -> None:
    class Look:
        needs_image = True

        def __init__(self) -> None:
            self.shapes: set[tuple[int, ...]] = set()

        def write(self, result: Result) -> None:
            self.shapes.add(result.image.shape)

    look = Look()
    console = [{"kind": "console"}]
    async with Pipeline(config(sinks=console), sinks=[look]) as pipeline:
        await pipeline.wait()
        assert [sink.kind for sink in pipeline.config.sinks] == ["console", "Look"]
    assert look.shapes == {(48, 64, 3)}


async def test_an_error_of_a_sink_is_a_sink_error_with_its_cause() -> None:
    class Broken:
        def write(self, result: Result) -> None:
            raise ZeroDivisionError("no")

    pipeline = Pipeline(config(), sinks=[Broken()])
    with pytest.raises(SinkError, match="ZeroDivisionError: no") as caught:
        async with pipeline:
            await pipeline.wait()
    cause: BaseException | None = caught.value
    while cause is not None and not isinstance(cause, ZeroDivisionError):
        cause = cause.__cause__
    assert cause is not None


async def test_a_postprocess_that_raises_loses_its_frame_and_ten_in_a_row_end_the_run() -> None:
    class Now(OnePerson):
        def __init__(self, wrong: range) -> None:
            super().__init__()
            self.calls = 0
            self.wrong = wrong

        def process(self, outputs: Sequence[Any], mapping: FrameMapping) -> Detections:
            self.calls += 1
            if self.calls in self.wrong:
                raise ValueError(f"call {self.calls}")
            return super().process(outputs, mapping)

    async with Pipeline(config(), postprocess=Now(range(3, 12))) as pipeline:
        await pipeline.wait()
    assert (pipeline.stats().results, pipeline.stats().dropped) == (FRAMES - 9, {"failed": 9})
    pipeline = Pipeline(config(), postprocess=Now(range(3, 13)))
    with pytest.raises(RunError, match="ValueError: call 12") as caught:
        async with pipeline:
            await pipeline.wait()
    assert caught.value.exit_code == 4


async def test_a_postprocess_that_refuses_the_model_is_a_model_error() -> None:
    class Picky(OnePerson):
        def open(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            raise LookupError("no heat map")

    with pytest.raises(ModelError, match="LookupError: no heat map") as caught:
        await Pipeline(config(), postprocess=Picky()).open()
    assert caught.value.path == ("postprocess", "kind")


@pytest.mark.parametrize("keep", [None, [1]])
async def test_a_postprocess_that_returns_something_else_is_named(keep: Any) -> None:
    class Odd:
        def process(self, outputs: Sequence[Any], mapping: FrameMapping) -> Any:
            return keep

    pipeline = Pipeline(config(), postprocess=Odd())
    with pytest.raises(RunError, match=r"Odd\.process: needed Detections, got "):
        async with pipeline:
            await pipeline.wait()


class Camera:
    """A reader of frames of one value; ``fails`` of its first runs break in the middle."""

    def __init__(self, value: int, *, live: bool = False, fails: int = 0) -> None:
        self.live = live
        self.reopenable = fails > 0
        self._value = value
        self._fails = fails
        self._left = 0
        self.calls: list[str] = []

    def open(self) -> FrameFormat:
        """Begin anew."""
        self.calls.append("open")
        self._left = FRAMES
        return FrameFormat(64, 48)

    def grab(self) -> int | None:
        """Count down."""
        if self._left == FRAMES // 2 and self.calls.count("open") <= self._fails:
            raise SourceError("unplugged")
        self._left -= 1
        return None if self._left < 0 else time.monotonic_ns()

    def retrieve(self, buffer: Any) -> None:
        """One value everywhere."""
        buffer[...] = self._value

    def interrupt(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Count it."""
        self.calls.append("close")


async def values_of(pipeline: Pipeline) -> dict[str, set[int]]:
    """Values of each camera's frames."""
    found: dict[str, set[int]] = {}
    async with pipeline:
        async for result in pipeline:
            found.setdefault(result.camera, set()).add(int(result.image[0, 0, 0]))
    return found


async def test_readers_take_the_places_of_cameras_or_are_the_cameras() -> None:
    model = {"model": {"engine": "simulated"}}
    door, yard = Camera(1), Camera(2)
    pipeline = Pipeline(model, sources={"door": door, "yard": yard})
    assert await values_of(pipeline) == {"door": {1}, "yard": {2}}
    assert door.calls == yard.calls == ["open", "close"]
    cameras = {
        "door": {"uri": "rtsp://nowhere/", "max_fps": 1000},
        "yard": {"uri": "synthetic:?frames=3&width=64&height=48"},
    }
    pipeline = Pipeline({**model, "cameras": cameras}, sources={"door": Camera(3)})
    assert (await values_of(pipeline))["door"] == {3}
    assert pipeline.config.cameras["door"].max_fps == 1000

    async def arrays() -> AsyncIterator[Any]:
        yield np.full((48, 64, 3), 9, np.uint8)

    one = {**model, "source": {"uri": "gone.mp4", "name": "front"}}
    assert await values_of(Pipeline(one, sources={"front": arrays()})) == {"front": {9}}


async def test_a_live_reader_is_opened_again_if_it_says_so() -> None:
    model = {"model": {"engine": "simulated"}, "source": {"reconnect": {"initial_s": 0.001}}}
    camera = Camera(1, live=True, fails=2)
    pipeline = Pipeline(model, frames=camera, max_frames=FRAMES // 2 * 3)
    async with pipeline:
        await pipeline.wait()
    assert camera.calls[:5] == ["open", "close", "open", "close", "open"]
    assert pipeline.stats().cameras["camera"].reconnects == 2
    camera = Camera(1, live=True, fails=2)
    camera.reopenable = False
    with pytest.raises(SourceError, match="unplugged"):
        async with Pipeline(model, frames=camera) as pipeline:
            await pipeline.wait()
    assert camera.calls == ["open", "close"]


def test_sources_that_do_not_fit_are_refused() -> None:
    two = config(source=None, cameras={"door": {"uri": "synthetic:"}, "yard": {"uri": 0}})
    with pytest.raises(ConfigError, match=r"sources\.dor: .*; did you mean 'door'\?"):
        Pipeline(two, sources={"dor": Camera(1)})
    with pytest.raises(ConfigError, match=r"sources\.door: needed .*, got Robot"):
        Pipeline(two, sources={"door": Robot()})
    with pytest.raises(ConfigError, match="frames: give them in sources"):
        Pipeline(config(), frames=Camera(1), sources={"camera": Camera(2)})
    with pytest.raises(ConfigError, match=r"sinks\.0: Robot is a class; give an object, as Robot"):
        Pipeline(config(), sinks=[Robot])


async def test_what_cannot_work_is_refused() -> None:
    class Waits:
        async def write(self, result: Result) -> None: ...

    with pytest.raises(ConfigError, match=r"sinks\.0: Waits\.write is async"):
        Pipeline(config(), sinks=[Waits()])
    with pytest.raises(ConfigError, match=r"sinks\.1: dict has no method write"):
        Pipeline(config(sinks=[{"kind": "console"}]), sinks=[{}])
    with pytest.raises(ConfigError, match="postprocess: Robot has no method process"):
        Pipeline(config(), postprocess=Robot())


async def test_an_object_is_used_by_one_pipeline_at_a_time() -> None:
    robot, other = Robot(), Robot()
    async with Pipeline(config(), sinks=[robot]) as first:
        second = Pipeline(config(), sinks=[other, robot])
        with pytest.raises(ClosedError, match="Robot: another pipeline uses this object"):
            await second.open()
        async with Pipeline(config(), sinks=[other]) as third:
            await third.wait()
        await first.wait()
    async with Pipeline(config(), sinks=[robot]) as again:
        await again.wait()
    assert robot.calls.count("close") == 2


async def test_one_object_cannot_be_two_sinks() -> None:
    robot = Robot()
    with pytest.raises(ClosedError, match="Robot: another part uses this object"):
        await Pipeline(config(), sinks=[robot, robot]).open()
    async with Pipeline(config(), sinks=[robot]) as pipeline:
        await pipeline.wait()
    assert robot.calls.count("open") == 1


async def test_a_pipeline_that_cannot_be_made_keeps_no_object() -> None:
    robot = Robot()
    missing = config(source={"uri": "synthetic:?width=0"})
    with pytest.raises(PipelineError):
        await Pipeline(missing, sinks=[robot]).open()
    async with Pipeline(config(), sinks=[robot]) as pipeline:
        await pipeline.wait()
    assert robot.calls.count("close") == 1


async def test_a_sink_that_hangs_is_abandoned() -> None:
    held, free = threading.Event(), threading.Event()

    class Stuck:
        def write(self, result: Result) -> None:
            held.set()
            free.wait()

    pipeline = Pipeline(config(), sinks=[Stuck()])
    try:
        async with pipeline:
            waiting = asyncio.ensure_future(pipeline.wait())
            await asyncio.to_thread(held.wait)
            pipeline.cancel()
            await waiting
        assert pipeline.abandoned == [Abandoned(SinkError, "sink-Stuck-0")]
    finally:
        free.set()
