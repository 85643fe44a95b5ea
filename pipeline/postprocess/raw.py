"""No decoding: the result lends the output tensors as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from pipeline.contracts import FrameMapping
from pipeline.memory.results import Detections
from pipeline.postprocess.settings import PostprocessSettings

if TYPE_CHECKING:
    from pipeline._native import TensorSpec

__all__ = ["Raw"]


class Raw:
    """Keeps the outputs in the result and detects nothing; implements ``Postprocess``."""

    keeps_outputs = True
    quick = True

    def __init__(self, settings: PostprocessSettings) -> None:
        self._nothing = Detections.empty(settings.labels)

    def open(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Any model fits."""

    def process(self, outputs: Sequence[npt.NDArray[Any]], mapping: FrameMapping) -> Detections:
        """No detections."""
        return self._nothing
