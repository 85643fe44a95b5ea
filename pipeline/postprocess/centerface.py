"""CenterFace: faces with five landmarks from a heat map of face centres.

Every cell of the heat map is ``stride`` input pixels wide and high; with score s it says that
a face's centre is at (column + offset_x + 0.5, row + offset_y + 0.5) cells and that its size
is exp(scale) cells. Landmarks are five (y, x) pairs in parts of the box from its corner.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.contracts import FrameMapping
from pipeline.errors import ModelError
from pipeline.memory.results import Detections
from pipeline.postprocess.boxes import BoxSelector
from pipeline.postprocess.settings import PostprocessSettings

if TYPE_CHECKING:
    from pipeline._native import TensorSpec

__all__ = ["CenterFace"]

_LANDMARKS = 5
_NEEDED = {"heat map": 1, "scale": 2, "offset": 2, "landmarks": 2 * _LANDMARKS}
# Names in the published model; words that other exports use follow.
_SCALE_NAMES = ("538", "scale", "size", "wh", "hw")
_OFFSET_NAMES = ("539", "offset", "off", "reg")
# exp of more is larger than any image and would soon overflow.
_LARGEST_SCALE = 20.0
# Suppression compares each candidate with each kept one; more than this are never faces.
_CANDIDATES = 4000
# No face is found in less.
_LEAST_PIXELS = 64

_log = logging.getLogger(__name__)


class _Head(NamedTuple):
    """Number of an output, and whether its channels come last."""

    number: int
    channels_last: bool
    height: int
    width: int

    def view(self, outputs: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """(channels, height, width), without a copy."""
        array: npt.NDArray[Any] = outputs[self.number][0]
        return array.transpose(2, 0, 1) if self.channels_last else array


class CenterFace:
    """Decodes CenterFace outputs, implementing ``Postprocess``."""

    keeps_outputs = False
    quick = False

    def __init__(self, settings: PostprocessSettings) -> None:
        self._settings = settings
        self._selector = BoxSelector(settings, ("face",), _LANDMARKS)
        self._heads: tuple[_Head, _Head, _Head, _Head] | None = None
        self._stride = np.ones(2, np.float32)

    def open(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Find the four heads; ModelError naming what the model has not."""
        heads = _find(outputs)
        heat = heads[0]
        for name, head in zip(_NEEDED, heads, strict=True):
            if (head.height, head.width) != (heat.height, heat.width):
                raise ModelError(
                    f"centerface: output {outputs[head.number].name!r} ({name}) is {head.width}x"
                    f"{head.height} cells, the heat map {heat.width}x{heat.height}"
                )
        height, width = _input_size(inputs)
        if min(height, width) < _LEAST_PIXELS:
            text = "the model takes images of %dx%d, too small to find a face; "
            _log.warning(
                text + "set model.input_shape, for example to [1, 3, 320, 320]", width, height
            )
        self._stride = np.array((width / heat.width, height / heat.height), np.float32)
        self._heads = heads

    def process(self, outputs: Sequence[npt.NDArray[Any]], mapping: FrameMapping) -> Detections:
        """Faces in frame pixels, clipped to the frame, best first."""
        if self._heads is None:
            raise ModelError("centerface: not open")
        heat, scale, offset, points = (head.view(outputs) for head in self._heads)
        rows, columns = np.nonzero(heat[0] >= self._settings.threshold)
        scores = heat[0, rows, columns].astype(np.float32)
        if len(scores) > _CANDIDATES:
            best = np.argpartition(scores, -_CANDIDATES)[-_CANDIDATES:]
            rows, columns, scores = rows[best], columns[best], scores[best]
        if not len(scores):
            return self._selector.nothing()
        corners, landmarks = self._decode(
            np.stack((columns, rows), 1).astype(np.float32),
            scale[::-1, rows, columns].T.astype(np.float32),
            offset[::-1, rows, columns].T.astype(np.float32),
            points[:, rows, columns].T.astype(np.float32),
        )
        labels = np.zeros(len(scores), np.int32)
        return self._selector.select(corners, scores, labels, mapping, landmarks)

    def _decode(
        self,
        cells: npt.NDArray[np.float32],
        scale: npt.NDArray[np.float32],
        offset: npt.NDArray[np.float32],
        points: npt.NDArray[np.float32],
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Corners (N, 2, 2) and landmarks (N, 5, 2), x before y, in model input pixels."""
        half = np.float32(0.5)
        size = np.exp(np.minimum(scale, np.float32(_LARGEST_SCALE))) * self._stride
        corner = (cells + offset + half) * self._stride - size * half
        boxes = np.stack((corner, corner + size), 1)
        landmarks = points.reshape(-1, _LANDMARKS, 2)[..., ::-1] * size[:, None] + corner[:, None]
        return boxes, landmarks


def _find(outputs: Sequence[TensorSpec]) -> tuple[_Head, _Head, _Head, _Head]:
    by_channels: dict[int, list[_Head]] = {}
    for index, spec in enumerate(outputs):
        shape = tuple(spec.shape)
        if len(shape) != 4 or shape[0] != 1 or np.dtype(spec.dtype).kind != "f":
            continue
        last = spec.layout == "NHWC" or (
            spec.layout == "" and shape[1] not in _NEEDED.values() and shape[3] in _NEEDED.values()
        )
        channels, height, width = (shape[3], *shape[1:3]) if last else shape[1:]
        by_channels.setdefault(channels, []).append(_Head(index, last, height, width))
    pairs = by_channels.get(2, [])
    found = {
        "heat map": by_channels.get(1, []),
        "scale": pairs,
        "offset": pairs[1:],
        "landmarks": by_channels.get(2 * _LANDMARKS, []),
    }
    for name, heads in found.items():
        if not heads:
            have = ", ".join(f"{spec.name!r} {list(spec.shape)}" for spec in outputs)
            raise ModelError(
                f"centerface: the model has no {name} output of float [1, {_NEEDED[name]}, "
                f"height, width]; it has {have or 'none'}"
            )
    scale, offset = _tell_apart(pairs, outputs)
    return found["heat map"][0], scale, offset, found["landmarks"][0]


def _tell_apart(pairs: list[_Head], outputs: Sequence[TensorSpec]) -> tuple[_Head, _Head]:
    """Scale and offset have two channels each: by name, else scale comes first."""

    def named(head: _Head, words: tuple[str, ...]) -> bool:
        return any(word in outputs[head.number].name.lower() for word in words)

    offset = next((head for head in pairs if named(head, _OFFSET_NAMES)), None)
    scale = next((h for h in pairs if h is not offset and named(h, _SCALE_NAMES)), None)
    if scale is None:
        scale = next(head for head in pairs if head is not offset)
    if offset is None:
        offset = next(head for head in pairs if head is not scale)
    return scale, offset


def _input_size(inputs: Sequence[TensorSpec]) -> tuple[int, int]:
    for spec in inputs:
        shape = tuple(spec.shape)
        if len(shape) == 4:
            last = spec.layout == "NHWC" or (spec.layout == "" and shape[3] in (1, 3))
            return (shape[1], shape[2]) if last else (shape[2], shape[3])
    raise ModelError("centerface: the model has no image input of four dimensions")
