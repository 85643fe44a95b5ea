"""YOLO detectors whose boxes are decoded in the model, as their exporters do by default.

``yolov8``: [1, 4 + classes, N], x and y of the centre, width and height in input pixels, and a
score for each class (v6, v8, v9, v11, v12, and YOLO-World with fixed classes). ``yolov5``:
[1, N, 5 + classes], with the score that there is an object before those of the classes, which it
multiplies (v5, v7). Either may come transposed. ``yolo_end2end``: [1, N, 6], corners, score and
class, suppressed in the model already (v10, v26, exports with NMS).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline.contracts import FrameMapping
from pipeline.errors import ModelError
from pipeline.memory.results import Detections
from pipeline.postprocess.boxes import MOST_CANDIDATES, BoxSelector, shapes_of
from pipeline.postprocess.settings import PostprocessSettings

if TYPE_CHECKING:
    from pipeline._native import TensorSpec

__all__ = ["Yolo", "YoloEnd2End"]

# Values before the scores of the classes.
_BEFORE = {"yolov8": 4, "yolov5": 5}


class Yolo:
    """Decodes YOLO outputs without suppression in the model; implements ``Postprocess``."""

    keeps_outputs = False
    quick = False

    def __init__(self, settings: PostprocessSettings) -> None:
        self._kind = settings.kind
        self._labels = settings.labels
        self._before = _BEFORE[settings.kind]
        self._selector = BoxSelector(settings)
        self._number: int | None = None

    def open(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Find the output. ModelError with the shapes when there is none that fits."""
        shapes = {i: tuple(spec.shape) for i, spec in enumerate(outputs) if _is_float(spec)}
        fitting = [i for i, shape in shapes.items() if len(shape) == 3 and shape[0] == 1]
        if len(fitting) != 1:
            raise ModelError(
                f"{self._kind}: needs one float output [1, {self._before} + classes, N] or "
                f"transposed; the model has {shapes_of(outputs)}"
            )
        self._number = fitting[0]
        rows, columns = shapes[fitting[0]][1:]
        values = self._before + len(self._labels)
        if self._labels and values not in (rows, columns):
            raise ModelError(
                f"{self._kind}: {len(self._labels)} labels need {values} values for each box; "
                f"output {outputs[fitting[0]].name!r} is [1, {rows}, {columns}]"
            )
        self._transposed = columns == values if self._labels else columns < rows
        values, boxes = (columns, rows) if self._transposed else (rows, columns)
        if values <= self._before:
            raise ModelError(
                f"{self._kind}: output {outputs[fitting[0]].name!r} [1, {rows}, {columns}] has "
                "no scores of classes"
            )
        self._most = min(boxes, MOST_CANDIDATES if self._before == 4 else 4 * MOST_CANDIDATES)
        dtype = outputs[fitting[0]].dtype
        self._scores = np.empty(boxes, dtype)
        self._mask = np.empty(boxes, np.bool_)
        self._taken = np.empty(self._most * values, dtype)

    def process(self, outputs: Sequence[npt.NDArray[Any]], mapping: FrameMapping) -> Detections:
        """Boxes in frame pixels, clipped to the frame, best first."""
        assert self._number is not None, "not open"
        values = outputs[self._number][0]
        values = values.T if self._transposed else values
        with np.errstate(all="ignore"):  # of a model that gives huge values or NaN
            # With a score for any object, few boxes are worth a look at those of their classes.
            likely = values[4]
            if self._before == 4:
                likely = np.max(values[4:], axis=0, out=self._scores)
            found = self._selector.candidates(likely, self._mask, self._most)
            taken = self._take(outputs[self._number][0], found)
            scores = likely[found].astype(np.float32, copy=False)
            if self._before == 5:
                scores = scores * np.max(taken[5:], axis=0)
                found = self._selector.candidates(scores, self._mask[: len(scores)])
                taken, scores = taken[:, found], scores[found]
            labels = np.argmax(taken[self._before :], axis=0)
            half = taken[2:4] * np.float32(0.5)
            corners = np.stack((taken[:2] - half, taken[:2] + half)).transpose(2, 0, 1)
            return self._selector.select(corners, scores, labels, mapping)

    def _take(
        self, output: npt.NDArray[Any], found: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.float32]:
        """Values (values, N) of these boxes; of the output as it lies, so that none is copied."""
        axis = 0 if self._transposed else 1
        shape = list(output.shape)
        shape[axis] = len(found)
        taken = self._taken[: shape[0] * shape[1]].reshape(shape)
        np.take(output, found, axis=axis, out=taken, mode="clip")
        return (taken.T if self._transposed else taken).astype(np.float32, copy=False)


class YoloEnd2End:
    """Decodes boxes that the model has suppressed already; implements ``Postprocess``."""

    keeps_outputs = False
    quick = False

    def __init__(self, settings: PostprocessSettings) -> None:
        self._selector = BoxSelector(settings)
        self._number: int | None = None

    def open(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Find the output. ModelError with the shapes when there is none that fits."""
        for number, spec in enumerate(outputs):
            shape = tuple(spec.shape)
            if _is_float(spec) and len(shape) == 3 and shape[0] == 1 and shape[2] == 6:
                self._number = number
                self._mask = np.empty(shape[1], np.bool_)
                return
        raise ModelError(
            f"yolo_end2end: needs a float output [1, N, 6]; the model has {shapes_of(outputs)}"
        )

    def process(self, outputs: Sequence[npt.NDArray[Any]], mapping: FrameMapping) -> Detections:
        """Boxes in frame pixels, clipped to the frame, best first."""
        assert self._number is not None, "not open"
        rows = outputs[self._number][0]
        with np.errstate(all="ignore"):
            taken = rows[self._selector.candidates(rows[:, 4], self._mask)].astype(np.float32)
            labels = np.nan_to_num(taken[:, 5], posinf=0, neginf=0).astype(np.int64)
            return self._selector.select(
                taken[:, :4].reshape(-1, 2, 2), taken[:, 4], labels, mapping, suppress=False
            )


def _is_float(spec: TensorSpec) -> bool:
    return np.dtype(spec.dtype).kind == "f"
