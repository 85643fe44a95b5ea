"""A live source under supervision: deadlines, stuck readers, reopening, frozen and new frames."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import FormatChangedError, SourceError
from pipeline.flow.backoff import Backoff
from pipeline.flow.capture import CaptureSettings, CaptureStage
from pipeline.flow.channel import Channel, ChannelClosed
from pipeline.flow.stats import CameraRecorder
from pipeline.memory.frame import Frame, FrameFormat, Image

Until = Callable[[Callable[[], bool]], Awaitable[None]]
SMALL, LARGE = FrameFormat(4, 2), FrameFormat(8, 6)

pytestmark = pytest.mark.usefixtures("no_leak")


class Camera:
    """A reader that delivers frames one after another until what ``script`` says comes.

    ``hang`` and ``deaf`` hang in ``grab`` (the latter whatever is done to it), ``open`` hangs in
    ``open``, ``end`` ends, ``fail`` fails, ``grow`` sends larger frames, ``still`` the same
    one again and again.
    """

    live = True

    def __init__(self, script: str, after: int = 3) -> None:
        self.script, self.after = script, after
        self.free, self.reached = threading.Event(), threading.Event()
        self.grabbed = self.closed = 0
        self.size = SMALL

    def _hang(self) -> None:
        self.reached.set()
        self.free.wait()

    def open(self) -> FrameFormat:
        if self.script == "open":
            self._hang()
        return self.size

    def grab(self) -> int | None:
        self.grabbed += 1
        if self.grabbed > self.after and self.script in ("hang", "deaf", "end", "fail"):
            if self.script in ("hang", "deaf"):
                self._hang()
            if self.script == "fail":
                raise SourceError("the cable was cut")
            return None
        return MonotonicClock().now()

    def retrieve(self, buffer: Image) -> None:
        if self.script == "grow" and self.grabbed > self.after and self.size != LARGE:
            self.size = LARGE
            raise FormatChangedError("the frame is 8x6", LARGE)
        if self.script == "alternate":
            self.size = LARGE if self.grabbed % 2 else SMALL
            if buffer.shape != self.size.shape:
                raise FormatChangedError("the frame is of the other size", self.size)
        if self.script == "liar" and self.grabbed > self.after:
            raise FormatChangedError("the frame is 8x6", LARGE)
        buffer[...] = 7 if self.script == "still" else self.grabbed % 200

    def interrupt(self) -> None:
        if self.script != "deaf":
            self.free.set()

    def close(self) -> None:
        self.closed += 1


class Rig:
    """A capture of the given cameras, one after another; the last one again and again."""

    def __init__(self, cameras: Sequence[Camera], **settings: Any) -> None:
        self.cameras = list(cameras)
        self.made: list[Camera] = []
        self.recorder = CameraRecorder()
        self.said: list[tuple[str, str]] = []
        self.channel: Channel[Frame] = Channel(1, "latest", self._drop)
        given: dict[str, Any] = {
            "backoff": Backoff(0.001, 0.01, 0.0),
            "read_s": 0.05,
            "open_s": 0.05,
        }
        self.stage = CaptureStage(
            self._make,
            self.channel,
            CaptureSettings(
                "door", True, 6, supervised=True, wait_at_start=True, **given | settings
            ),
            MonotonicClock(),
            self.recorder,
            lambda state, reason: self.said.append((state, reason)),
        )
        self.taken: list[tuple[int, ...]] = []

    def _make(self) -> Camera:
        camera = self.cameras.pop(0) if len(self.cameras) > 1 else self.cameras[0]
        self.made.append(camera)
        return camera

    def _drop(self, frame: Frame, cause: str) -> None:
        self.recorder.dropped[cause] += 1
        frame.release()

    async def take(self) -> None:
        while True:
            try:
                frame = await self.channel.get()
            except ChannelClosed:
                return
            self.taken.append(frame.image.shape)
            frame.release()

    def states(self, state: str) -> int:
        return sum(each == state for each, _ in self.said)

    async def run(self, until: Until, condition: Callable[[], bool]) -> None:
        """Run until the condition holds, then stop."""
        taking = asyncio.ensure_future(self.take())
        running = asyncio.ensure_future(self.stage.run())
        await until(lambda: condition() or running.done())
        assert condition()
        self.stage.stop()
        async with asyncio.timeout(10):
            await running
            await taking


async def test_a_read_that_is_stuck_is_left_behind_and_replaced(until: Until) -> None:
    stuck, good = Camera("deaf"), Camera("good")
    rig = Rig([stuck, good])
    await rig.run(until, lambda: good.grabbed > 20)
    assert ("lost", "no frame came within 0.05 s") in rig.said
    assert rig.recorder.reconnects == 1
    assert len(rig.taken) > 3
    assert not await rig.stage.close(0.01)  # its thread is still in the read
    stuck.free.set()
    await until(lambda: stuck.closed == 1)
    assert good.closed == 1


async def test_readers_that_are_stuck_do_not_become_more_and_more(until: Until) -> None:
    stuck = [Camera("deaf", after=0) for _ in range(8)]
    rig = Rig(stuck, backoff=Backoff(0.001, 0.002, 0.0))
    running = asyncio.ensure_future(rig.stage.run())
    await until(lambda: len(rig.made) == 3 and rig.states("lost") == 3)
    for _ in range(50):  # far more than its pauses
        await asyncio.sleep(0.002)
    assert len(rig.made) == 3
    rig.made[0].free.set()  # one lets go, so that there is room for another
    await until(lambda: len(rig.made) == 4)
    rig.stage.stop()
    rig.stage.give_up()
    await running
    assert not await rig.stage.close(0.01)
    for camera in rig.made:
        camera.free.set()
    await until(lambda: all(camera.closed == 1 for camera in rig.made))


async def test_an_open_that_is_stuck_is_left_behind_and_replaced(until: Until) -> None:
    stuck, good = Camera("open"), Camera("good")
    stuck.interrupt = lambda: None  # type: ignore[method-assign]
    rig = Rig([stuck, good])
    await rig.run(until, lambda: good.grabbed > 5)
    assert ("lost", "it did not open within 0.05 s") in rig.said
    stuck.free.set()
    await until(lambda: stuck.closed == 1)  # it opened after all
    assert await rig.stage.close(10)


@pytest.mark.parametrize(("script", "reason"), [("end", "the stream ended"), ("fail", "cable")])
async def test_the_end_of_a_live_stream_is_not_the_end(
    until: Until, script: str, reason: str
) -> None:
    rig = Rig([Camera(script), Camera(script), Camera("good")])
    await rig.run(until, lambda: rig.cameras[-1].grabbed > 5)
    lost = [why for state, why in rig.said if state == "lost"]
    assert len(lost) == 2
    assert all(reason in why for why in lost)
    assert rig.recorder.reconnects == 2
    assert await rig.stage.close(10)
    assert [camera.closed for camera in rig.made] == [1, 1, 1]


async def test_attempts_are_counted_in_a_row_and_then_given_up() -> None:
    never = [Camera("fail", after=0) for _ in range(4)]
    rig = Rig([Camera("fail"), *never], backoff=Backoff(0.001, 0.002, 0.0, attempts=3))
    taking = asyncio.ensure_future(rig.take())
    async with asyncio.timeout(30):
        await rig.stage.run()
        await taking
    assert str(rig.stage.error) == "the cable was cut (given up after 3 attempts)"
    assert len(rig.made) == 4  # the one that delivered, and three that did not
    assert rig.said[-1] == ("ended", str(rig.stage.error))
    assert await rig.stage.close(10)


async def test_a_image_that_stays_the_same_is_stale_and_opened_again(until: Until) -> None:
    rig = Rig([Camera("still"), Camera("good")], stale_s=0.02)
    await rig.run(until, lambda: rig.cameras[-1].grabbed > 5)
    assert rig.states("stale") == 1
    assert rig.recorder.dropped["frozen"] == 1
    assert rig.recorder.reconnects == 1
    assert await rig.stage.close(10)


async def test_larger_images_get_larger_buffers_without_reopening(until: Until) -> None:
    rig = Rig([Camera("grow")])
    await rig.run(until, lambda: rig.made[-1:] != [] and rig.made[0].grabbed > 20)
    assert {*rig.taken} == {(2, 4, 3), (6, 8, 3)}
    assert rig.taken == sorted(rig.taken)  # first the small ones, then the large ones
    assert rig.recorder.frames == len(rig.taken) + rig.recorder.dropped["latest"]
    assert rig.recorder.reconnects == 0
    assert [state for state, _ in rig.said] == ["connecting", "live", "live", "ended"]
    pool = rig.stage.pool
    assert pool is not None
    assert pool.free == len(pool)
    assert await rig.stage.close(10)


async def test_images_of_two_sizes_in_turn_are_all_taken_into_the_same_buffers(
    until: Until,
) -> None:
    rig = Rig([Camera("alternate")])
    await rig.run(until, lambda: rig.made[-1:] != [] and rig.made[0].grabbed > 40)
    assert {*rig.taken} == {(2, 4, 3), (6, 8, 3)}
    assert rig.recorder.frames == len(rig.taken) + rig.recorder.dropped["latest"]
    assert [state for state, _ in rig.said] == ["connecting", "live", "live", "ended"]
    assert len(rig.stage._pools) == 2
    assert await rig.stage.close(10)


async def test_a_image_that_does_not_fit_what_it_asked_for_is_an_error(until: Until) -> None:
    rig = Rig([Camera("liar"), Camera("good")])
    await rig.run(until, lambda: rig.cameras[-1].grabbed > 5)
    assert ("lost", "the frame is 8x6") in rig.said
    assert await rig.stage.close(10)


async def test_a_rate_that_is_too_high_is_lowered_without_decoding(until: Until) -> None:
    camera = Camera("good")
    rig = Rig([camera], max_fps=20.0)
    await rig.run(until, lambda: len(rig.taken) >= 4)
    assert rig.recorder.dropped["rate"] > 20
    assert rig.recorder.frames == len(rig.taken) + sum(rig.recorder.dropped.values())
    assert await rig.stage.close(10)


async def test_a_image_that_announces_too_much_is_refused_before_any_buffer(
    until: Until,
) -> None:
    huge, good = Camera("good"), Camera("good")
    huge.size = FrameFormat(1 << 20, 1 << 20)
    rig = Rig([huge, good], max_pixels=48)
    await rig.run(until, lambda: good.grabbed > 5)
    (reason,) = [why for state, why in rig.said if state == "lost"]
    assert "1048576x1048576" in reason
    assert "max_pixels (48)" in reason
    assert await rig.stage.close(10)


async def test_a_image_that_grows_too_large_is_refused_before_any_buffer(until: Until) -> None:
    rig = Rig([Camera("grow"), Camera("good")], max_pixels=47)
    await rig.run(until, lambda: rig.cameras[-1].grabbed > 5)
    assert [why for state, why in rig.said if state == "lost"] == [
        "the image declares a size of 8x6, more than max_pixels (47) allows"
    ]
    assert await rig.stage.close(10)
