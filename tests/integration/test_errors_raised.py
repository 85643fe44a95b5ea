"""Whatever a part of the program's raises: it is named, everybody learns of it, nothing hangs."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import ConfigError, Pipeline, PipelineError, Result, SinkError, SourceError
from pipeline.config.loading import parse
from pipeline.errors import FormatChangedError
from pipeline.machine.first_error import Failure
from pipeline.memory.frame import FrameFormat, Image
from pipeline.memory.results import Detections
from tests.integration.complaints import HANG, config, synthetic

pytestmark = [pytest.mark.usefixtures("no_leak")]

IMAGE = np.zeros((48, 64, 3), np.uint8)
MODEL = {"model": config()["model"]}
ERRORS = [
    RuntimeError("broken"),
    StopIteration("broken"),
    StopAsyncIteration("broken"),
    asyncio.CancelledError("broken"),
    GeneratorExit("broken"),
]


async def broken(after: int = 3) -> AsyncIterator[Image]:
    for _ in range(after):
        yield IMAGE
    raise OSError("cable cut")


async def test_everybody_who_waits_gets_the_error() -> None:
    async def iterate(pipe: Pipeline) -> None:
        async for _ in pipe:
            pass

    async def program(pipe: Pipeline) -> None:
        async with pipe:
            ends = await asyncio.gather(
                iterate(pipe), pipe.wait(), pipe.wait(), return_exceptions=True
            )
            errors.extend(end for end in ends if isinstance(end, SourceError))
            assert pipe.health().problems[0] == "ended"

    errors: list[BaseException] = []
    with pytest.raises(SourceError, match="cable cut") as caught:  # this task had none yet
        await asyncio.wait_for(program(Pipeline(MODEL, frames=broken())), HANG)
    errors.append(caught.value)
    assert len(errors) == len(set(map(id, errors))) == 4
    assert {str(error) for error in errors} == {"arrays: item 3: OSError: cable cut"}
    assert len({id(error.__cause__) for error in errors}) == 1
    assert isinstance(errors[0].__cause__, SourceError)


async def test_who_has_dealt_with_the_error_does_not_get_it_again() -> None:
    async with asyncio.timeout(HANG), Pipeline(MODEL, frames=broken()) as pipe:
        for _ in range(2):
            with pytest.raises(SourceError, match="cable cut"):
                await pipe.wait()


async def test_an_error_of_the_body_wins_and_ours_is_its_note() -> None:
    async def program() -> None:
        async with Pipeline(MODEL, frames=broken()) as pipe:
            waiting = asyncio.create_task(pipe.wait())
            await asyncio.wait({waiting})
            assert isinstance(waiting.exception(), SourceError)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        await asyncio.wait_for(program(), HANG)
    assert caught.value.__notes__ == [
        "the pipeline failed: SourceError: arrays: item 3: OSError: cable cut"
    ]


async def test_an_error_in_a_group_is_not_told_twice() -> None:
    async def program() -> None:
        async with Pipeline(MODEL, frames=broken()) as pipe, asyncio.TaskGroup() as group:
            group.create_task(pipe.wait())

    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(program(), HANG)
    assert caught.group_contains(SourceError, match="cable cut")
    assert not hasattr(caught.value, "__notes__")


async def test_errors_with_arguments_of_their_own_are_copied() -> None:
    failure = Failure()
    original = FormatChangedError("another size", FrameFormat(64, 48))
    original.add_note("seen at noon")
    failure.record(original)
    with pytest.raises(FormatChangedError, match="another size") as caught:
        failure.raise_copy()
    assert caught.value is not original
    assert caught.value.__cause__ is original
    assert caught.value.format == FrameFormat(64, 48)
    assert caught.value.__notes__ == ["seen at noon"]


# Every seam, and what should not be raised there.


class Part:
    """A reader, a sink and a postprocess that raises in one of its calls."""

    live = False

    def __init__(self, where: str, error: BaseException) -> None:
        self._where, self._error, self._grabbed = where, error, 0

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any) -> Any:
            if name == self._where:
                raise self._error
            self._grabbed += name == "grab"
            results = {
                "open": FrameFormat(64, 48),
                "grab": None if self._grabbed > 5 else self._grabbed,
                "process": Detections.empty(),
            }
            return results.get(name)

        known = ("open", "begin", "grab", "retrieve", "interrupt", "write", "process", "close")
        if name not in known:
            raise AttributeError(name)
        return call


async def end_of(pipe: Pipeline) -> BaseException | None:
    """How a program ends that uses it."""

    async def program() -> None:
        async with pipe:
            async for _ in pipe:
                pass

    task = asyncio.create_task(program())
    done, _ = await asyncio.wait({task}, timeout=HANG)
    assert done, "it hangs"
    assert not task.cancelled()
    return task.exception()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", ["open", "grab", "retrieve", "close"])
async def test_a_reader(where: str, error: BaseException) -> None:
    end = await end_of(Pipeline(MODEL, frames=Part(where, error)))
    assert isinstance(end, SourceError)
    assert type(error).__name__ in str(end)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", ["open", "write", "close"])
async def test_a_sink(where: str, error: BaseException) -> None:
    settings = config(source=synthetic(frames=5))
    end = await end_of(Pipeline(settings, sinks=[Part(where, error)]))
    assert isinstance(end, SinkError)
    assert "sink-Part-0" in str(end)
    assert type(error).__name__ in str(end)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_postprocess(error: BaseException) -> None:
    settings = config(source=synthetic(frames=15))  # ten in a row end the run
    end = await end_of(Pipeline(settings, postprocess=Part("process", error)))
    assert isinstance(end, PipelineError)
    assert str(end).startswith("postprocess: ")
    assert type(error).__name__ in str(end)


class Items:
    """An async iterator that is no generator, so that anything can be raised from it."""

    def __init__(self, error: BaseException) -> None:
        self._error = error
        self._count = 0

    def __aiter__(self) -> Items:
        return self

    async def __anext__(self) -> Image:
        self._count += 1
        if self._count > 3:
            raise self._error
        return IMAGE


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_an_iterator_of_the_program(error: BaseException) -> None:
    end = await end_of(Pipeline(MODEL, frames=Items(error)))
    if isinstance(error, StopAsyncIteration):
        assert end is None  # that is how it ends
        return
    assert isinstance(end, SourceError)
    assert str(end).startswith("arrays: item 3: ")


PROGRAM = """\
import asyncio, sys
import numpy as np
from pipeline import Pipeline
from pipeline.memory.frame import FrameFormat

where, name, path = sys.argv[1:]

class Part:
    live = False
    def open(self, *_): return FrameFormat(64, 48)
    def begin(self): pass
    def grab(self): self.fail("reader"); return 1
    def retrieve(self, buffer): pass
    def interrupt(self): pass
    def write(self, result): self.fail("sink")
    def close(self): open(path, "w").close()
    def fail(self, part):
        if part == where:
            raise {"exit": SystemExit(7), "interrupt": KeyboardInterrupt()}[name]

async def frames():
    yield np.zeros((48, 64, 3), np.uint8)
    Part().fail("iterator")

config = {"model": {"engine": "simulated", "input_shape": [1, 48, 64, 3]}}
given = Part() if where == "reader" else frames()

async def main():
    async with Pipeline(config, frames=given, sinks=[Part()]) as pipe:
        await pipe.wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["exit", "interrupt"])
@pytest.mark.parametrize("where", ["reader", "sink", "iterator"])
def test_ending_the_program_is_left_to_python(where: str, name: str, tmp_path: Path) -> None:
    """From any part SystemExit and KeyboardInterrupt end it, and the sink is closed before."""
    closed = tmp_path / "closed"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, where, name, str(closed)],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == {"exit": 7, "interrupt": -2}[name], done.stderr
    assert closed.exists()


# Context, and what is refused before anything opens.

WHO = contextvars.ContextVar("WHO", default="nobody")


async def test_parts_see_the_context_of_open() -> None:
    seen: set[str] = set()
    kept: list[str] = []

    class Sink(Part):
        def write(self, result: Result) -> None:
            seen.add(WHO.get())

    async def frames() -> AsyncIterator[Image]:
        for number in range(3):
            kept.append(WHO.get())
            WHO.set(f"item {number}")  # it stays so for the iterator
            yield IMAGE

    WHO.set("caller")
    sinks = [Sink("", OSError())]
    async with asyncio.timeout(HANG), Pipeline(MODEL, frames=frames(), sinks=sinks) as pipe:
        WHO.set("later")
        await pipe.wait()
    assert seen == {"caller"}
    assert kept == ["caller", "item 0", "item 1"]


def test_one_iterator_cannot_feed_several_cameras() -> None:
    two = parse({"cameras": {"left": synthetic(), "right": synthetic()}, **MODEL})
    with pytest.raises(ConfigError, match=r"^frames: .* left, right$"):
        Pipeline(two, frames=broken())


@pytest.mark.parametrize("source", [{}, {"source": None}, {"source": {"uri": "gone.mp4"}}])
@pytest.mark.parametrize("text", [False, True])
async def test_frames_need_no_source(source: dict[str, Any], text: bool, tmp_path: Path) -> None:
    if text:
        path = tmp_path / "camera.yaml"
        shown = "" if not source else f"source: {source['source'] or ''}\n"
        path.write_text(f"{shown}model: {{engine: simulated, input_shape: [1, 48, 64, 3]}}\n")
        pipe = Pipeline.from_yaml(path, frames=broken())
    else:
        pipe = Pipeline({**MODEL, **source}, frames=broken())
    async with asyncio.timeout(HANG), pipe:
        with pytest.raises(SourceError, match="cable cut"):
            await pipe.wait()
    assert pipe.stats().results == 3


@pytest.mark.parametrize("number", [-1, 0, 2.5, "5", True])
def test_a_wrong_number_of_frames_is_refused(number: Any) -> None:
    with pytest.raises(ConfigError, match=r"^max_frames: needs a whole number above 0, got "):
        Pipeline(config(source=synthetic()), max_frames=number)
