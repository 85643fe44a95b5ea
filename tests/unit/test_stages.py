"""The stages by themselves: opened and closed once, frames counted, buffers given back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline import Executor, PipelineError, Result, SinkError, SourceError
from pipeline.clock import ManualClock, MonotonicClock
from pipeline.contracts import FrameMapping, StreamInfo
from pipeline.errors import ClosedError
from pipeline.flow.capture import CaptureSettings, CaptureStage
from pipeline.flow.channel import Channel, ChannelClosed, Overflow
from pipeline.flow.engine_supervisor import EngineSettings, EngineSupervisor
from pipeline.flow.fair_share import FairShare
from pipeline.flow.outlet import Outlet
from pipeline.flow.postprocess import PostprocessStage
from pipeline.flow.sink import SinkStage
from pipeline.flow.slot_filler import CameraFeed, InFlight
from pipeline.flow.stage import Stage
from pipeline.flow.stats import CameraRecorder
from pipeline.flow.submit import SubmitStage
from pipeline.memory.frame import Frame, FrameFormat, FramePool, Image
from pipeline.memory.results import Detections, Holders, Stamps
from pipeline.memory.ring import Ring

Until = Callable[[Callable[[], bool]], Awaitable[None]]
FORMAT = FrameFormat(4, 2, 25.0)

pytestmark = pytest.mark.usefixtures("no_leak")


# What every stage does.


class Part(Stage):
    """A stage that tells what was called, and whose ``_open`` can be held up or fail."""

    def __init__(self, *, fails: bool = False, close_fails: bool = False) -> None:
        super().__init__("part")
        self.calls: list[str] = []
        self.reached, self.free = threading.Event(), threading.Event()
        self._fails, self._close_fails = fails, close_fails

    def _open(self) -> str:
        self.calls.append("open")
        self.reached.set()
        self.free.wait()
        if self._fails:
            raise OSError("no such thing")
        return "opened"

    def _close(self) -> None:
        self.calls.append("close")
        if self._close_fails:
            raise SinkError("disk full")


async def test_a_stage_is_closed_once() -> None:
    part = Part()
    part.free.set()
    assert await part.open() == "opened"
    assert await part.close(30)
    assert await part.close(30)
    assert part.calls == ["open", "close"]


async def test_a_stage_that_was_never_opened_needs_no_close() -> None:
    part = Part()
    assert await part.close(30)
    assert part.calls == []


async def test_a_failed_open_is_not_closed() -> None:
    part = Part(fails=True)
    part.free.set()
    with pytest.raises(PipelineError, match=r"^part: OSError: no such thing$"):
        await part.open()
    assert await part.close(30)
    assert part.calls == ["open"]


async def test_an_open_that_was_cancelled_but_went_on_is_closed(until: Until) -> None:
    part = Part()
    opening = asyncio.ensure_future(part.open())
    await until(part.reached.is_set)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not await part.close(0.01)  # stuck, so far
    part.free.set()
    await until(lambda: part.calls == ["open", "close"])


async def test_an_error_of_closing_is_raised() -> None:
    part = Part(close_fails=True)
    part.free.set()
    await part.open()
    with pytest.raises(SinkError, match="disk full"):
        await part.close(30)


# Capture.


class Script:
    """A reader that delivers ``count`` frames of one value each, then ends or fails."""

    live = True

    def __init__(self, count: int, error: Exception | None = None, wait_at: int = -1) -> None:
        self.count, self.error, self.wait_at = count, error, wait_at
        self.grabbed = self.retrieved = self.closed = 0
        self.interrupted, self.reached, self.go = (threading.Event() for _ in range(3))

    def open(self) -> FrameFormat:
        return FORMAT

    def grab(self) -> int | None:
        if self.grabbed == self.wait_at:
            self.reached.set()
            self.go.wait()
        if self.interrupted.is_set():
            return None
        if self.grabbed == self.count:
            if self.error is not None:
                raise self.error
            return None
        self.grabbed += 1
        return 1000 * self.grabbed

    def retrieve(self, buffer: Image) -> None:
        self.retrieved += 1
        buffer[...] = self.grabbed

    def interrupt(self) -> None:
        self.interrupted.set()

    def close(self) -> None:
        self.closed += 1


class Rig:
    """A capture stage with everything around it."""

    def __init__(
        self,
        reader: Script,
        policy: Overflow = "block",
        *,
        queue: int = 1,
        buffers: int = 4,
        max_frames: int | None = None,
    ) -> None:
        self.recorder = CameraRecorder()
        self.said: list[tuple[str, str]] = []
        self.channel: Channel[Frame] = Channel(queue, policy, self._drop)
        settings = CaptureSettings("front", True, buffers, max_frames=max_frames)
        self.stage = CaptureStage(
            lambda: reader,
            self.channel,
            settings,
            ManualClock(5),
            self.recorder,
            lambda state, reason: self.said.append((state, reason)),
        )

    def _drop(self, frame: Frame, cause: str) -> None:
        self.recorder.dropped[cause] += 1
        frame.release()

    async def take(self) -> list[tuple[int, int, int]]:
        """Sequence, value and stamp of all frames, each given back at once."""
        found: list[tuple[int, int, int]] = []
        while True:
            try:
                frame = await self.channel.get()
            except ChannelClosed:
                return found
            found.append((frame.sequence, int(frame.image[0, 0, 0]), frame.captured_ns))
            assert frame.camera == "front"
            frame.release()

    def check_buffers(self) -> None:
        pool = self.stage.pool
        assert pool is not None
        assert pool.free == len(pool)


async def test_capture_fills_buffers_in_order() -> None:
    reader = Script(20)
    rig = Rig(reader)
    assert await rig.stage.open() == FORMAT
    running = asyncio.ensure_future(rig.stage.run())
    found = await rig.take()
    await running
    assert found == [(i, i + 1, 1000 * (i + 1)) for i in range(20)]
    assert rig.recorder.frames == 20
    assert rig.recorder.stages["capture"].count == 20
    assert rig.stage.error is None
    assert await rig.stage.close(30)
    assert reader.closed == 1
    rig.check_buffers()


async def test_capture_ends_after_so_many_frames() -> None:
    reader = Script(20)
    rig = Rig(reader, queue=8, max_frames=3)
    await rig.stage.open()
    await rig.stage.run()
    assert reader.grabbed == 3
    assert len(await rig.take()) == 3
    assert await rig.stage.close(30)


async def test_a_source_that_breaks_is_an_error_for_later() -> None:
    rig = Rig(Script(2, SourceError("cable cut")), queue=8)
    await rig.stage.open()
    await rig.stage.run()  # raises nothing, as what came before it is still good
    assert str(rig.stage.error) == "cable cut"
    assert [sequence for sequence, _, _ in await rig.take()] == [0, 1]
    assert await rig.stage.close(30)
    rig.check_buffers()


async def test_any_other_error_is_the_sources_own() -> None:
    rig = Rig(Script(2, ZeroDivisionError()), queue=8)
    await rig.stage.open()
    await rig.stage.run()
    assert type(rig.stage.error) is SourceError
    assert "unexpected ZeroDivisionError" in str(rig.stage.error)
    assert rig.channel.closed
    assert [sequence for sequence, _, _ in await rig.take()] == [0, 1]
    assert await rig.stage.close(30)
    rig.check_buffers()


async def test_block_waits_for_a_buffer_that_comes_back_from_another_thread(until: Until) -> None:
    rig = Rig(Script(3), queue=8, buffers=1)
    await rig.stage.open()
    running = asyncio.ensure_future(rig.stage.run())
    for number in range(3):
        frame = await rig.channel.get()
        assert frame.sequence == number
        assert rig.recorder.frames == number + 1
        thread = threading.Thread(target=frame.release)
        thread.start()
        await until(lambda thread=thread: not thread.is_alive())  # type: ignore[misc]
    await running
    assert rig.recorder.dropped == {}
    assert await rig.stage.close(30)
    rig.check_buffers()


@pytest.mark.parametrize("policy", ["latest", "drop_newest"])
async def test_a_live_source_is_read_on_when_no_buffer_is_left(policy: Overflow) -> None:
    reader = Script(10)
    rig = Rig(reader, policy, queue=1, buffers=1)
    await rig.stage.open()
    held = []

    async def hold() -> None:
        held.append(await rig.channel.get())

    holding = asyncio.ensure_future(hold())
    await rig.stage.run()
    await holding
    assert reader.grabbed == rig.recorder.frames == 10
    assert reader.retrieved == 1  # nothing is decoded without a buffer
    assert rig.recorder.dropped == {"no_buffer": 9}
    held[0].release()
    assert await rig.stage.close(30)
    rig.check_buffers()


@pytest.mark.parametrize(("policy", "left"), [("latest", [18, 19]), ("drop_newest", [0, 1])])
async def test_overflow_keeps_the_right_ones(policy: Overflow, left: list[int]) -> None:
    rig = Rig(Script(20), policy, queue=2, buffers=4)
    await rig.stage.open()
    await rig.stage.run()
    assert [sequence for sequence, _, _ in await rig.take()] == left
    assert rig.recorder.dropped == {policy: 18}
    assert await rig.stage.close(30)
    rig.check_buffers()


async def test_stop_ends_it_while_it_waits_for_a_buffer(until: Until) -> None:
    rig = Rig(Script(10), queue=8, buffers=1)
    await rig.stage.open()
    running = asyncio.ensure_future(rig.stage.run())
    frame = await rig.channel.get()
    await until(lambda: rig.stage._freed is not None)
    rig.stage.stop()
    await running
    frame.release()
    assert await rig.stage.close(30)
    rig.check_buffers()


async def test_a_read_that_is_stuck_can_be_given_up(until: Until) -> None:
    reader = Script(10, wait_at=3)
    rig = Rig(reader, queue=8, buffers=8)
    await rig.stage.open()
    running = asyncio.ensure_future(rig.stage.run())
    await until(reader.reached.is_set)
    rig.stage.stop()
    rig.stage.give_up()
    await running
    assert len(await rig.take()) == 3
    assert not await rig.stage.close(3600)  # bounded all the same
    reader.go.set()
    await until(lambda: reader.closed == 1)
    rig.check_buffers()


async def test_what_was_to_be_read_next_is_let_go_of_though_a_read_is_stuck(until: Until) -> None:
    reader = Script(10, wait_at=0)
    rig = Rig(reader, queue=8, buffers=4)
    await rig.stage.open()
    running = asyncio.ensure_future(rig.stage.run())
    await until(reader.reached.is_set)
    pool = rig.stage.pool
    assert pool is not None
    assert pool.free == 2  # one that is being read, and one to be read next
    rig.stage.stop()
    rig.stage.give_up()
    await running
    assert pool.free == 3
    reader.go.set()
    assert await rig.stage.close(30)
    rig.check_buffers()


async def test_giving_up_on_a_reader_that_reads_changes_nothing() -> None:
    rig = Rig(Script(5), queue=8, buffers=8)
    await rig.stage.open()
    rig.stage.give_up()
    await rig.stage.run()
    assert len(await rig.take()) == 5
    assert await rig.stage.close(30)


# SubmitStage and finish, around a real ring.


class Fill:
    """A preprocess that writes the frame's first value into the whole input."""

    mapping = FrameMapping(1, 1, 0, 0, 4, 2)

    def __init__(self, error: type[Exception] | None = None) -> None:
        self.error = error

    def open(self, frame_format: FrameFormat, spec: Any) -> None:
        assert frame_format == FORMAT

    def forget(self, slot_index: int) -> None:
        pass

    def process(self, image: Image, target: npt.NDArray[Any], slot_index: int) -> None:
        if self.error is not None:
            raise self.error("cannot be filled")
        target[...] = image[0, 0, 0]

    def resize_step(self, slot_index: int) -> None:
        return None


class Look:
    """A postprocess whose one detection has the first output value as its score."""

    quick = False

    def __init__(self, keeps_outputs: bool = False) -> None:
        self.keeps_outputs = keeps_outputs

    def open(self, inputs: Any, outputs: Any) -> None:
        pass

    def process(self, outputs: Sequence[npt.NDArray[Any]], mapping: FrameMapping) -> Detections:
        assert not outputs[0].flags.writeable
        score = np.array([outputs[0][0, 0]], np.float32)
        return Detections(
            np.zeros((1, 4), np.float32),
            score,
            np.zeros(1, np.int32),
            np.zeros((1, 0, 2), np.float32),
        )


class Line:
    """Frames into slots and results out of them: dispatch and finish with an outlet or two."""

    def __init__(
        self,
        executor: Executor,
        ring: Ring,
        fill: Fill,
        look: Look,
        needs_image: Sequence[bool],
        spares: int = 0,
    ) -> None:
        self.recorder = CameraRecorder()
        self.said: list[tuple[str, str]] = []
        clock = MonotonicClock()

        async def make() -> tuple[Executor, Ring]:
            return executor, ring

        self.engine = EngineSupervisor(
            make, EngineSettings(), lambda state, reason: self.said.append((state, reason))
        )
        self.frames: Channel[Frame] = Channel(64, "block", lambda frame, _: frame.release())
        selector: FairShare[Frame] = FairShare()
        selector.add("front", self.frames)
        selector.close()
        self.in_flight: Channel[InFlight] = Channel(
            ring.depth, "block", lambda item, cause: item.drop(cause)
        )
        self.results: list[Channel[Result]] = [
            Channel(64, "block", lambda result, _: result.release()) for _ in needs_image
        ]
        outlets = [
            Outlet(channel, needs_image=needs, spares=spares)
            for channel, needs in zip(self.results, needs_image, strict=True)
        ]
        self.failed: list[tuple[str, int]] = []

        def fail(error: SourceError, sequence: int) -> None:
            self.failed.append((str(error), sequence))

        feeds = {"front": CameraFeed("front", fill, self.recorder, fail=fail)}
        self.dispatch = SubmitStage(feeds, selector, self.engine, self.in_flight, clock)
        self.finish = PostprocessStage(look, self.engine, self.in_flight, outlets, clock)
        self.pool = FramePool(FORMAT, 16)

    async def feed(self, count: int) -> None:
        for number in range(count):
            frame = self.pool.try_acquire()
            assert frame is not None
            frame.sequence, frame.camera = number, "front"
            frame.image[...] = number
            await self.frames.put(frame)
        self.frames.close()

    async def run(self) -> None:
        await self.engine.open()
        for stage in (self.dispatch, self.finish):
            await stage.open()
        try:
            async with asyncio.TaskGroup() as group:
                for stage in (self.dispatch, self.finish):
                    group.create_task(stage.run())
        finally:
            self.in_flight.clear()
            self.frames.clear()
            for stage in (self.dispatch, self.finish):
                assert await stage.close(30)

    async def taken(self, outlet: int = 0) -> list[Result]:
        return [await self.results[outlet].get() for _ in range(len(self.results[outlet]))]


def simulated(**options: Any) -> Any:
    return Executor.open(engine="simulated", contexts=2, input_shape=[1, 2, 4, 3], options=options)


@pytest.mark.both_loops
async def test_results_are_in_order_though_runs_end_in_any(until: Until) -> None:
    times = {"latency_ms": 0.1, "jitter_ms": 2, "distribution": "exponential"}
    async with simulated(**times) as executor, executor.ring(4) as ring:
        line = Line(executor, ring, Fill(), Look(), [True])
        await line.feed(16)
        await line.run()
        results = await line.taken()
        assert [result.sequence for result in results] == list(range(16))
        assert [int(result.detections.scores[0]) for result in results] == list(range(16))
        for result in results:
            assert (result.image == result.sequence).all()
            # The first three are the source's, which there is none of here.
            assert list(result.stamps[3:]) == sorted(result.stamps[3:])
            assert result.outputs == ()
            result.release()
        assert line.recorder.results == 16
        assert line.pool.free == 16
        assert {info.state for info in ring.slots()} == {"free"}


async def test_a_receiver_without_images_holds_no_buffer() -> None:
    async with simulated() as executor, executor.ring(2) as ring:
        line = Line(executor, ring, Fill(), Look(), [False, True])
        await line.feed(3)
        await line.run()
        bare, whole = await line.taken(0), await line.taken(1)
        assert line.pool.free == 13
        for result in whole:
            result.release()
        assert line.pool.free == 16
        for result in bare:
            assert len(result.detections) == 1
            with pytest.raises(ClosedError, match="needs_image"):
                _ = result.image


async def test_outputs_that_are_kept_keep_their_slot() -> None:
    async with simulated() as executor, executor.ring(4) as ring:
        line = Line(executor, ring, Fill(), Look(keeps_outputs=True), [False])
        await line.feed(3)
        await line.run()
        results = await line.taken()
        assert sorted(info.state for info in ring.slots()) == ["free", *["leased"] * 3]
        for result in results:
            assert [output.name for output in result.outputs] == ["output"]
            assert (result.outputs[0].array == result.sequence).all()
            assert (result.image == result.sequence).all()
            result.release()
            with pytest.raises(ClosedError, match=f"result {result.sequence} of camera 'front'"):
                _ = result.outputs
        assert {info.state for info in ring.slots()} == {"free"}
        assert line.pool.free == 16


async def test_outputs_that_are_copied_hold_no_slot() -> None:
    async with simulated() as executor, executor.ring(2) as ring:
        line = Line(executor, ring, Fill(), Look(keeps_outputs=True), [True], spares=3)
        await line.feed(5)
        await line.run()
        results = await line.taken()
        assert {info.state for info in ring.slots()} == {"free"}
        assert [result.sequence for result in results] == [0, 1, 2]  # two found no set of buffers
        arrays = [result.outputs[0].array for result in results]
        for result, array in zip(results, arrays, strict=True):
            assert (array == result.sequence).all()
            assert (result.image == result.sequence).all()
            result.release()
        assert line.pool.free == 16


async def test_a_failed_run_costs_its_frame_only() -> None:
    async with simulated(fail_runs=[4]) as executor, executor.ring(3) as ring:
        line = Line(executor, ring, Fill(), Look(), [False])
        await line.feed(10)
        await line.run()
        failed = {*range(10)} - {result.sequence for result in await line.taken()}
        assert len(failed) == 1
        assert line.recorder.dropped == {"failed": 1}
        assert line.said == []  # one is no reason to open the engine anew
        assert line.pool.free == 16
        assert {info.state for info in ring.slots()} == {"free"}


async def test_a_failed_preprocess_gives_everything_back() -> None:
    async with simulated() as executor, executor.ring(3) as ring:
        line = Line(executor, ring, Fill(ValueError), Look(), [False])
        await line.feed(5)
        await line.run()
        assert [sequence for _, sequence in line.failed] == [*range(5)]
        assert all("ValueError in preprocess: cannot be" in text for text, _ in line.failed)
        assert line.recorder.dropped == {"failed": 5}
        assert line.pool.free == 16
        assert {info.state for info in ring.slots()} == {"free"}


# SinkStage.


class Ledger:
    """A sink that writes down; from ``fails_at`` on it fails."""

    def __init__(self, fails_at: int = -1) -> None:
        self.written: list[int] = []
        self.threads: set[str] = set()
        self.stream: StreamInfo | None = None
        self.closed = 0
        self._fails_at = fails_at

    def open(self, stream: StreamInfo) -> None:
        self.stream = stream

    def begin(self) -> None:
        pass

    def write(self, result: Result) -> None:
        self.threads.add(threading.current_thread().name)
        if result.sequence == self._fails_at:
            raise SinkError("disk full")
        self.written.append(result.sequence)

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


def borrowed(sequence: int, given_back: list[int]) -> Result:
    image = np.zeros((2, 4, 3), np.uint8)
    lease = Holders(lambda: given_back.append(sequence))
    stamps = Stamps(*range(9))
    mapping = FrameMapping(1, 1, 0, 0, 2, 2)
    return Result(
        "front", sequence, stamps, Detections.empty(), mapping, lambda: image, tuple, lease
    )


@pytest.mark.parametrize("fails_at", [-1, 3])
async def test_deliver_writes_in_order_and_gives_back(fails_at: int) -> None:
    given_back: list[int] = []
    channel: Channel[Result] = Channel(8, "block", lambda result, _: result.release())
    sink = Ledger(fails_at)
    stage = SinkStage("ledger", sink, channel)
    stage.describe(StreamInfo("front", FORMAT))
    await stage.open()
    assert sink.stream == StreamInfo("front", FORMAT)
    for sequence in range(6):
        await channel.put(borrowed(sequence, given_back))
    channel.close()
    if fails_at < 0:
        await stage.run()
    else:
        with pytest.raises(SinkError, match="disk full"):
            await stage.run()
        channel.clear()
    assert sink.written == list(range(6 if fails_at < 0 else fails_at))
    assert given_back == list(range(6))
    assert sink.threads == {"sink-ledger"}
    assert await stage.close(30)
    assert sink.closed == 1
