"""The contracts between the parts, on one page. Read this first.

A frame travels one way: Reader -> frame buffer -> Preprocess -> slot input -> engine ->
slot output -> Postprocess -> Result -> Sink. Every method may block. It is called on the one
thread of its part, never on the event loop and never by two threads at once, unless it says
otherwise. If ``open`` fails, ``close`` is not called; after a successful ``open``, ``close``
runs exactly once. Parts that a program gives as objects may leave out members: docs/parts.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy.typing as npt

from pipeline.memory.frame import FrameFormat, Image
from pipeline.memory.results import Detections, FrameMapping, Result

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pipeline import _native
    from pipeline._native import TensorSpec
    from pipeline.engines.autotune_values import Trials
    from pipeline.engines.image import ImageInput
    from pipeline.engines.settings import ModelSettings
    from pipeline.memory.ring import ResizeStep

__all__ = [
    "EngineModule",
    "FrameMapping",
    "Postprocess",
    "Preprocess",
    "Reader",
    "Sink",
    "StreamInfo",
]


@runtime_checkable
class Reader(Protocol):
    """A source of frames: file, camera, folder, array iterator, generator.

    ``live`` is true if frames come at their own pace (camera), false if they come as fast as
    they are read (file). A reader may also have an integer ``damaged``: the number of frames
    that its decoder has patched up or refused.
    """

    live: bool

    def open(self) -> FrameFormat:
        """Open and return the format. SourceError if it cannot be opened."""

    def grab(self) -> int | None:
        """Advance to the next frame; its capture stamp in ns, or None at the end.

        SourceError if the source broke instead of ending.
        """

    def retrieve(self, buffer: Image) -> None:
        """Write the grabbed frame into ``buffer``, whose shape is that of the format.

        SourceError if it cannot be decoded or its size is not that of ``buffer``;
        FormatChangedError with the new format, if that is known.
        """

    def interrupt(self) -> None:
        """Make a waiting ``grab`` return None soon. Called from another thread, at any time."""

    def close(self) -> None:
        """Free everything."""


class Preprocess(Protocol):
    """Writes a frame straight into a slot's input view."""

    def open(self, frame_format: FrameFormat, spec: TensorSpec) -> None:
        """Compute the letterbox for this frame size and input. ConfigError if it does not fit."""

    def forget(self, slot_index: int) -> None:
        """Forget that this slot's padding was written; another camera has used it."""

    @property
    def mapping(self) -> FrameMapping:
        """Mapping computed by ``open``."""

    def process(self, pixels: Image, target: npt.NDArray[Any], slot_index: int) -> None:
        """Fill ``target``, the input view of slot ``slot_index``, from a frame's ``pixels``."""

    def resize_step(self, slot_index: int) -> ResizeStep | None:
        """Native equivalent of ``process`` for this slot, or None."""


class EngineModule(Protocol):
    """The Python side of an engine: a module with these names, and a line in ``parts.PARTS``.

    Its native side is a folder in native/engines, or any other that gives a native ``Engine``.
    A module that knows the sizes before it opens may also have ``slot_bytes(settings)``, the
    bytes of a slot's inputs and outputs, and ``MEMORY``, the bytes that all slots may take.
    """

    OPTIONS: type[BaseModel]
    """Model of ``model.options``."""

    SWAPS_COLORS: bool
    """True if the engine swaps colors at no cost; otherwise preprocessing does."""

    TAKES_DEVICE: bool
    """True if ``model.device`` chooses among devices."""

    @staticmethod
    def needs_file(options: Mapping[str, object]) -> bool:
        """True if ``model.path`` is needed with these ``model.options``, not checked yet."""

    @staticmethod
    def open_engine(
        settings: ModelSettings, options: Any, image: ImageInput | None
    ) -> _native.Engine:
        """Load the model on the device; ``options`` are an instance of ``OPTIONS``. Blocks.

        Without ``image`` every input stays as the model declares it; with it, each image input
        is uint8 NHWC. EngineNotInstalledError, ModelError (file, shape or type), DeviceError
        (absent or lost), ConfigError (an option that does not fit the model or the device).
        """

    @staticmethod
    def trials(settings: ModelSettings, cores: int) -> Trials:
        """Values worth trying for the settings that are ``auto``, on a CPU of ``cores``."""

    @staticmethod
    def list_devices(library: str | None) -> tuple[str, list[tuple[str, str]]]:
        """Version of the engine, and (id, full name) of each device. EngineNotInstalledError."""


class Postprocess(Protocol):
    """Turns a slot's outputs into detections in frame pixels."""

    keeps_outputs: bool
    """True if the result lends the outputs, so that the slot stays leased."""

    quick: bool
    """True if ``process`` does no work and may run on the event loop."""

    def open(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Check that the model has the outputs this decoder needs. ModelError naming the tensor.

        Called again when the engine was reopened.
        """

    def process(self, outputs: Sequence[npt.NDArray[Any]], mapping: FrameMapping) -> Detections:
        """Decode one run. ``outputs`` are read-only, made on access, and must not be kept.

        An exception loses the frame; ten in a row end the run.
        """


class StreamInfo(NamedTuple):
    """Stream that a sink will get results of.

    ``format`` is None if the source is not there yet or there are several cameras.
    """

    camera: str
    format: FrameFormat | None


class Sink(Protocol):
    """A consumer of results, in capture order.

    One that looks at ``result.image`` says so before it is made, as its images take buffers: a
    built-in sink by ``needs_image`` of its settings, another by a class attribute of that name.
    """

    def open(self, stream: StreamInfo) -> None:
        """Open the target without losing its content. SinkError if it cannot be written."""

    def begin(self) -> None:
        """Replace earlier content: all parts are open, and results will come."""

    def write(self, result: Result) -> None:
        """Write one result, borrowed for the length of the call. SinkError on failure."""

    def interrupt(self) -> None:
        """Make a waiting ``write`` fail soon. Called from another thread, at any time."""

    def close(self) -> None:
        """Flush and close. SinkError if written data was lost."""


for _public in (EngineModule, Postprocess, Reader, Sink, StreamInfo):
    _public.__module__ = "pipeline"  # so that pickles survive moves
