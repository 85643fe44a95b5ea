"""Checks that every part must pass, built in or not; each raises AssertionError with the reason.

``make`` returns a new part, not yet open. Nothing of a part may be left after its ``close``.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.contracts import StreamInfo
from pipeline.errors import PipelineError
from pipeline.memory.frame import FrameFormat
from pipeline.memory.results import Detections, FrameMapping
from pipeline.parts import call_optional
from pipeline.pipeline import Pipeline
from pipeline.postprocess import OwnPostprocessSettings
from pipeline.sinks import OwnSinkSettings
from pipeline.sources import SourceSettings

__all__ = ["check_postprocess", "check_sink", "check_source"]

_SECONDS = 10.0
_UNTOUCHED = 77
_KINDS = {"boxes": np.float32, "scores": np.float32, "labels": np.int32, "landmarks": np.float32}
_CONFIG = {
    "source": {"uri": "synthetic:?width=64&height=48&frames=5"},
    "model": {"engine": "simulated"},
}


def check_source(make: Callable[[], Any]) -> None:
    """Check a source: its format, stamps and frames, stopping, and what it leaves behind."""
    SourceSettings(kind="check:It").with_object(make())
    with _nothing_left():
        reader = make()
        found = _in_time("open", reader.open)
        assert isinstance(found, FrameFormat), f"open: needed a FrameFormat, got {found!r}"
        stamps: list[int] = []
        while len(stamps) < 5 and (stamp := _in_time("grab", reader.grab)) is not None:
            assert isinstance(stamp, int), f"grab: needed whole nanoseconds, got {stamp!r}"
            assert not stamps or stamp >= stamps[-1], "grab: a stamp is before the last one"
            stamps.append(stamp)
            _check_frame(reader, found)
        assert stamps, "grab: there is no frame to check"
        call_optional(reader, "close")
    with _nothing_left():
        reader = make()
        _in_time("open", reader.open)
        if hasattr(reader, "interrupt"):
            reader.interrupt()
            _in_time("grab after interrupt", reader.grab)
        call_optional(reader, "close")
    _run({"model": _CONFIG["model"]}, 3, sources={"camera": make()})


def check_postprocess(
    make: Callable[[], Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    arrays: Sequence[npt.NDArray[Any]],
) -> None:
    """Check a postprocess with one run of a model.

    ``inputs`` and ``outputs`` are the model's ``TensorSpec``; ``arrays`` what the run brought.
    """
    OwnPostprocessSettings(kind="check:It").with_object(make())
    decoder = make()
    size = (int(inputs[0].shape[2]), int(inputs[0].shape[1]))
    mapping = FrameMapping(1.0, 1.0, 0.0, 0.0, *size)
    given = [array.copy() for array in arrays]
    for array in given:
        array.setflags(write=False)
    with _nothing_left():
        call_optional(decoder, "open", inputs, outputs)
        first = _in_time("process", decoder.process, given, mapping)
        assert isinstance(first, Detections), f"process: needed Detections, got {first!r}"
        again = _in_time("process", decoder.process, given, mapping)
    for name, dtype in _KINDS.items():
        one, other = getattr(first, name), getattr(again, name)
        assert one.dtype == dtype, f"process: {name} are {one.dtype}, needed {np.dtype(dtype)}"
        assert len(one) == len(first), f"process: {name} are {len(one)} for {len(first)} scores"
        assert np.array_equal(one, other), f"process: {name} differ for the same outputs"
        assert np.isfinite(one).all(), f"process: {name} are not finite"
        kept = [array for array in given if np.shares_memory(one, array)]
        assert not kept, f"process: {name} share memory with an output"
    assert first.boxes.shape == (len(first), 4), f"process: boxes are {first.boxes.shape}"


def check_sink(make: Callable[[], Any]) -> None:
    """Check a sink: without a result, with results, stopped, and what it leaves behind."""
    OwnSinkSettings(kind="check:It").with_object(make())
    with _nothing_left():
        sink = make()
        for name, arguments in (("open", (StreamInfo("camera", None),)), ("begin", ())):
            _in_time(name, call_optional, sink, name, *arguments)
        call_optional(sink, "interrupt")
        _in_time("close", call_optional, sink, "close")
    _run(_CONFIG, sinks=[make()])
    _run({**_CONFIG, "source": {"uri": "synthetic:?width=64&height=48"}}, 3, sinks=[make()])


def _check_frame(reader: Any, found: FrameFormat) -> None:
    buffer = np.full(found.shape, _UNTOUCHED, np.uint8)
    _in_time("retrieve", reader.retrieve, buffer)
    assert (buffer != _UNTOUCHED).any(), "retrieve: nothing was written into the buffer"


def _run(config: dict[str, Any], most: int = 1000, **parts: Any) -> None:
    """Run a pipeline to its end or for so many results, and see that all is given back."""

    async def run() -> Pipeline:
        async with Pipeline(config, **parts) as pipeline:
            count = 0
            async for _ in pipeline:
                count += 1
                if count == most:
                    break
        return pipeline

    with _nothing_left():
        pipeline = asyncio.run(asyncio.wait_for(run(), _SECONDS))
    stats = pipeline.stats()
    assert pipeline.abandoned == [], f"these hung: {pipeline.abandoned}"
    assert stats.results > 0, "no result came"
    assert stats.slots == {"free": stats.depth}, f"slots are not free: {stats.slots}"


def _in_time(what: str, call: Callable[..., Any], *args: Any) -> Any:
    """Call on a thread of its own, as a pipeline does; AssertionError when it hangs."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((call(*args), None))
        except Exception as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_SECONDS)
    assert outcome, f"{what}: hangs"
    value, error = outcome[0]
    if error is not None:
        assert isinstance(error, PipelineError), f"{what}: raises {error!r}"
        raise error
    return value


@contextlib.contextmanager
def _nothing_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(_SECONDS)
        assert not thread.is_alive(), f"a thread is left: {thread.name}"
