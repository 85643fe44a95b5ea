"""Parts that a program gives as objects: sinks and a postprocess of its own."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt
from pydantic import ConfigDict

from pipeline.contracts import FrameMapping, StreamInfo
from pipeline.errors import ClosedError, ConfigError, ModelError
from pipeline.memory.results import Detections, Result
from pipeline.sinks.settings import SinkBase

if TYPE_CHECKING:
    from pipeline._native import TensorSpec

__all__ = ["InUse", "OwnPostprocess", "OwnSink", "OwnSinkSettings", "own_sinks"]


class OwnSinkSettings(SinkBase):
    """A sink given as an object, with the queue and the error handling of any sink."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    kind: Literal["own"] = "own"
    sink: Any

    @property
    def needs_image(self) -> bool:
        """True if the object says so."""
        return bool(getattr(self.sink, "needs_image", False))


class OwnSink:
    """Adds the members that a sink may leave out: all but ``write``; implements ``Sink``."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.needs_image = bool(getattr(sink, "needs_image", False))

    def open(self, stream: StreamInfo) -> None:
        """Open it."""
        _call(self._sink, "open", stream)

    def begin(self) -> None:
        """Begin."""
        _call(self._sink, "begin")

    def write(self, result: Result) -> None:
        """Give it one result."""
        self._sink.write(result)

    def interrupt(self) -> None:
        """Interrupt it; without such a method a ``write`` that hangs is abandoned."""
        _call(self._sink, "interrupt")

    def close(self) -> None:
        """Close it."""
        _call(self._sink, "close")


class OwnPostprocess:
    """Adds the members that a postprocess may leave out: all but ``process``.

    It never keeps the outputs: what it wants to keep, it copies.
    """

    keeps_outputs = False
    quick = False

    def __init__(self, postprocess: Any) -> None:
        _check_methods("postprocess", postprocess, "process", ("open",))
        self._postprocess = postprocess

    def open(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Show it the model's tensors."""
        _call(self._postprocess, "open", inputs, outputs)

    def process(self, outputs: Sequence[npt.NDArray[Any]], mapping: FrameMapping) -> Detections:
        """Decode one run. ModelError when it returns something else than Detections."""
        found = self._postprocess.process(outputs, mapping)
        if not isinstance(found, Detections):
            raise ModelError(
                f"{type(self._postprocess).__name__}.process: needed Detections, "
                f"got {type(found).__name__}"
            )
        return found


def own_sinks(sinks: Sequence[Any], before: int) -> tuple[OwnSinkSettings, ...]:
    """Settings for the objects, counted on from ``before``. ConfigError naming the wrong one."""
    for number, sink in enumerate(sinks, before):
        _check_methods(f"sinks.{number}", sink, "write", ("open", "begin", "interrupt", "close"))
    return tuple(OwnSinkSettings(sink=sink) for sink in sinks)


class InUse:
    """Objects in use by a pipeline; ClosedError if another one uses one of them."""

    _all: dict[int, object] = {}  # noqa: RUF012 - shared by all pipelines

    def __init__(self, *given: object) -> None:
        self._given = [each for each in given if each is not None]
        self._taken: dict[int, object] = {}

    def take(self) -> None:
        """Mark them as used."""
        taking: dict[int, object] = {}
        for each in self._given:
            if id(each) in self._all or id(each) in taking:
                user = "another pipeline" if id(each) in self._all else "another part"
                raise ClosedError(f"{type(each).__name__}: {user} uses this object")
            taking[id(each)] = each
        self._all.update(taking)
        self._taken = taking

    def give_back(self) -> None:
        """Let others use them."""
        for key in self._taken:
            self._all.pop(key, None)
        self._taken = {}


def _check_methods(where: str, part: Any, needed: str, optional: Sequence[str]) -> None:
    name = type(part).__name__
    if not callable(getattr(part, needed, None)):
        raise ConfigError(f"{where}: {name} has no method {needed}")
    for method in (needed, *optional):
        if inspect.iscoroutinefunction(getattr(part, method, None)):
            raise ConfigError(
                f"{where}: {name}.{method} is async, but it is called on a thread of its own: "
                "make it a plain method, and reach an event loop by call_soon_threadsafe"
            )


def _call(part: Any, method: str, *args: Any) -> None:
    if (function := getattr(part, method, None)) is not None:
        function(*args)
