"""A postprocess that is not built in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from pipeline.contracts import FrameMapping
from pipeline.errors import RunError
from pipeline.memory.results import Detections
from pipeline.parts import call_optional
from pipeline.postprocess.settings import OwnPostprocessSettings

if TYPE_CHECKING:
    from pipeline._native import TensorSpec

__all__ = ["OwnPostprocess"]


class OwnPostprocess:
    """Makes the postprocess on its thread, and adds the member that it may leave out.

    It never keeps the outputs: what it wants to keep, it copies.
    """

    keeps_outputs = False
    quick = False

    def __init__(self, settings: OwnPostprocessSettings) -> None:
        self._make = settings.make
        self._postprocess: Any = None

    def open(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Make it, once, and show it the model's tensors."""
        if self._postprocess is None:
            self._postprocess = self._make()
        call_optional(self._postprocess, "open", inputs, outputs)

    def process(self, outputs: Sequence[npt.NDArray[Any]], mapping: FrameMapping) -> Detections:
        """Decode one run. RunError when it returns something else than Detections."""
        found = self._postprocess.process(outputs, mapping)
        if not isinstance(found, Detections):
            raise RunError(
                f"{type(self._postprocess).__name__}.process: needed Detections, "
                f"got {type(found).__name__}"
            )
        return found
