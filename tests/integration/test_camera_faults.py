"""Whatever a part of a camera raises loses that camera alone; the others do not notice."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest

from pipeline import Pipeline, SourceError
from pipeline.clock import MonotonicClock
from pipeline.errors import FormatChangedError, PipelineError
from pipeline.memory.frame import FrameFormat, FramePool, Image
from pipeline.preprocess.preprocessor import Preprocessor
from tests.conftest import Until
from tests.integration.complaints import config, results, running, synthetic, times

pytestmark = pytest.mark.usefixtures("no_leak")

ERRORS: list[BaseException] = [
    ValueError("a bad\nvalue"),
    ZeroDivisionError(),
    MemoryError("no room"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    OverflowError("too large"),
    StopIteration(3),
    RecursionError("too deep"),
    GeneratorExit(),
    cv2.error("(-215:Assertion failed) !empty()"),
    PipelineError("not what a reader may raise"),
]


def fresh() -> list[BaseException]:
    """Errors without the traceback of an earlier test."""
    return [copy.copy(error) for error in ERRORS]


class Faulty:
    """A camera of which one ``part`` raises what comes next; it works once nothing is left.

    Each of its connections raises in its third frame.
    """

    live = True

    def __init__(self, part: str, errors: list[BaseException]) -> None:
        self._part, self._errors = part, errors
        self._grabbed = 0
        self._ends = threading.Event()

    def _fault(self, part: str) -> None:
        if part == self._part and self._errors:
            raise self._errors.pop(0)

    def open(self) -> FrameFormat:
        self._fault("open")
        return FrameFormat(64, 48)

    def grab(self) -> int | None:
        if self._ends.wait(0.002):
            return None
        self._grabbed += 1
        if self._grabbed > 2:
            self._fault("grab")
            if self._part in ("interrupt", "close") and self._errors:
                return None  # it is interrupted and closed when it is lost
        return MonotonicClock().now()

    def retrieve(self, buffer: Image) -> None:
        if self._grabbed > 2:
            self._fault("retrieve")
            if self._part == "format" and self._errors:
                self._errors.pop(0)
                raise FormatChangedError("it is larger", FrameFormat(1 << 15, 1 << 15))
        buffer[...] = self._grabbed % 200

    def interrupt(self) -> None:
        self._ends.set()
        self._fault("interrupt")

    def close(self) -> None:
        self._fault("close")


def cameras(**bad: Any) -> dict[str, Any]:
    """A good camera, and a bad one that a test replaces."""
    bad = {
        "kind": f"{__name__}:made_by_the_test",
        "live": True,
        "at_start": "wait",
        "reconnect": {"initial_s": 0.01, "max_s": 0.02},
        **bad,
    }
    return config(cameras={"good": synthetic(fps=100), "bad": bad})


_make: Callable[[], Any] = object


def made_by_the_test() -> Any:
    """The bad camera's reader."""
    return _make()


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """``replaced(make)``: what reads the bad camera is made by ``make``."""
    return lambda make: monkeypatch.setitem(globals(), "_make", make)


async def survives(until: Until, errors: list[BaseException], lost: int) -> None:
    """The bad camera is lost so often, then delivers; the good one does all the time."""
    async with running(cameras()) as pipe:
        await until(lambda: not errors and times(pipe, "bad", "lost") >= lost)
        before = results(pipe, "bad"), results(pipe, "good")
        await until(lambda: results(pipe, "bad") >= before[0] + 5)
        await until(lambda: results(pipe, "good") >= before[1] + 5)
        assert pipe.stats().cameras["good"].reconnects == 0
        assert times(pipe, "good", "lost") == 0


PARTS = ["make", "open", "grab", "retrieve", "interrupt", "close"]


@pytest.mark.parametrize("part", PARTS)
async def test_a_reader_that_raises_anything_is_lost_alone(
    part: str, replaced: Any, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    errors = fresh()

    def make() -> Faulty:
        if part == "make" and errors:
            raise errors.pop(0)
        return Faulty(part, errors)

    replaced(make)
    await survives(until, errors, lost=len(ERRORS))
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == len(ERRORS) - 1  # each once, but for one that is ours
    assert all(record.exc_info is not None for record in told)
    assert all("\n" not in record.getMessage() for record in told)


async def test_memory_for_frame_buffers_that_is_not_there_loses_that_camera_alone(
    replaced: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[BaseException] = [MemoryError("no room"), np.exceptions.AxisError("odd")]

    def pool(frame_format: FrameFormat, count: int, *args: Any) -> FramePool:
        if frame_format.width == 80 and errors:
            raise errors.pop(0)
        return FramePool(frame_format, count, *args)

    class Wide(Faulty):
        def open(self) -> FrameFormat:
            return FrameFormat(80, 48)

    monkeypatch.setattr("pipeline.flow.capture.FramePool", pool)
    replaced(lambda: Wide("", []))
    await survives(until, errors, lost=2)


async def test_a_size_that_grows_beyond_the_limit_loses_that_camera_alone(
    replaced: Any, until: Until
) -> None:
    errors: list[BaseException] = [ValueError()] * 3
    replaced(lambda: Faulty("format", errors))
    await survives(until, errors, lost=3)


@pytest.mark.parametrize("part", ["open", "process", "forget", "resize_step"])
@pytest.mark.parametrize("batch", [1, 3])
async def test_preprocessing_that_raises_anything_loses_that_camera_alone(
    part: str, batch: int, replaced: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = fresh()
    usual = getattr(Preprocessor, part)

    def raising(self: Preprocessor, *args: Any) -> Any:
        # The good camera pads with another value.
        if self._settings.pad == 7 and errors:
            raise errors.pop(0)
        return usual(self, *args)

    monkeypatch.setattr(Preprocessor, part, raising)
    if part == "process":
        monkeypatch.setattr(Preprocessor, "resize_step", lambda self, index: None)
    if part == "resize_step" and batch > 1:
        pytest.skip("frames of a batch are not resized by the run")
    replaced(lambda: Faulty("", []))
    settings = cameras(preprocess={"pad": 7})
    settings["model"]["input_shape"] = [batch, 48, 64, 3]
    settings["model"]["options"]["outputs"] = [{"name": "v", "shape": [batch, 10]}]
    async with running(settings) as pipe:
        await until(lambda: not errors)
        await until(lambda: times(pipe, "bad", "lost") >= 1)
        before = results(pipe, "bad"), results(pipe, "good")
        await until(lambda: results(pipe, "bad") >= before[0] + 5)
        await until(lambda: results(pipe, "good") >= before[1] + 5)
        assert set(pipe.stats().cameras["good"].dropped) <= {"latest"}
        assert pipe.stats().cameras["bad"].dropped["failed"] >= 1
        assert times(pipe, "engine", "failed") == 0


@pytest.mark.parametrize("part", ["open", "grab", "retrieve"])
async def test_the_only_source_that_raises_anything_ends_the_pipeline_as_its_error(
    part: str, replaced: Any
) -> None:
    class Reader(Faulty):
        live = False

    errors: list[BaseException] = [ZeroDivisionError("by what it was told")]
    pipe = Pipeline(config(source=synthetic()), frames=Reader(part, errors))
    with pytest.raises(SourceError, match="unexpected ZeroDivisionError") as raised:
        async with pipe:
            await pipe.wait()
    assert raised.value.exit_code == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_interpreter_passes(error: type[BaseException]) -> None:
    from pipeline.flow.source_faults import SourceFaults

    def part() -> None:
        raise error

    with pytest.raises(error):
        SourceFaults("door").call("open", part)
