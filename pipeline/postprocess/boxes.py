"""From candidate boxes to detections: mapped to the frame, suppressed, best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt

from pipeline.contracts import FrameMapping
from pipeline.errors import ConfigError
from pipeline.memory.results import Detections
from pipeline.postprocess.settings import PostprocessSettings

__all__ = ["MOST_CANDIDATES", "BoxSelector"]

MOST_CANDIDATES = 1000
"""Candidates that are compared with one another, the best ones."""

Floats = npt.NDArray[np.float32]


class BoxSelector:
    """Selects boxes by the settings: threshold, classes, suppression within a class, number."""

    def __init__(
        self, settings: PostprocessSettings, names: tuple[str, ...] = (), landmarks: int = 0
    ) -> None:
        self._settings = settings
        self._names = settings.labels or names
        self._landmarks = landmarks
        self._classes = [self._index(i, each) for i, each in enumerate(settings.classes)]

    def candidates(
        self, scores: Floats, mask: npt.NDArray[np.bool_], most: int = MOST_CANDIDATES
    ) -> npt.NDArray[np.intp]:
        """Indices of the scores that reach the threshold, of the ``most`` best ones.

        ``mask`` (N,) is overwritten.
        """
        np.greater_equal(scores, np.float32(self._settings.threshold), out=mask)
        found = np.flatnonzero(mask)
        if len(found) > most:
            found = found[np.argpartition(scores[found], -most)[-most:]]
        return found

    def select(
        self,
        corners: Floats,
        scores: Floats,
        labels: npt.NDArray[Any],
        mapping: FrameMapping,
        landmarks: Floats | None = None,
        *,
        suppress: bool = True,
    ) -> Detections:
        """Detections of corners (N, 2, 2), x before y, in model input pixels.

        So are ``landmarks`` (N, K, 2); None for no landmarks.
        """
        points = mapping.to_frame(landmarks) if landmarks is not None else None
        boxes = mapping.to_frame(corners).reshape(-1, 4)
        sizes = boxes[:, 2:] - boxes[:, :2]
        # A box wholly in the padding has no area left; a broken model may give NaN.
        sound = (sizes > 0).all(1) & np.isfinite(scores)
        if points is not None:
            sound &= np.isfinite(points).all((1, 2))
        if self._classes:
            sound &= np.isin(labels, self._classes)
        boxes, sizes, scores, labels = (each[sound] for each in (boxes, sizes, scores, labels))
        if not len(scores):
            return self.nothing()
        if suppress:
            keep = self._suppress(np.concatenate((boxes[:, :2], sizes), 1), scores, labels)
        else:
            keep = np.argsort(-scores, kind="stable")
        keep = keep[: self._settings.max_detections]
        return Detections(
            boxes[keep],
            np.clip(scores[keep], 0, 1),
            labels[keep].astype(np.int32),
            np.empty((len(keep), 0, 2), np.float32) if points is None else points[sound][keep],
            self._names,
        )

    def nothing(self) -> Detections:
        """No detections."""
        return Detections.empty(self._names, self._landmarks)

    def _suppress(
        self, corners_sizes: Floats, scores: Floats, labels: npt.NDArray[Any]
    ) -> npt.NDArray[np.intp]:
        kept = cv2.dnn.NMSBoxesBatched(
            cast(Any, corners_sizes.astype(np.float64)),
            cast(Any, scores),
            cast(Any, labels.astype(np.int32)),
            0.0,
            self._settings.iou_threshold,
        )
        keep = np.asarray(kept, np.intp).reshape(-1)
        return keep[np.argsort(-scores[keep], kind="stable")]

    def _index(self, number: int, name: str | int) -> int:
        if isinstance(name, int):
            return name
        if name not in self._names:
            known = ", ".join(self._names) or "no labels are set"
            raise ConfigError(f"unknown class {name!r}; known: {known}", ("classes", number))
        return self._names.index(name)


def shapes_of(outputs: Sequence[Any]) -> str:
    """The outputs of a model, for a message."""
    return ", ".join(f"{spec.name!r} {list(spec.shape)}" for spec in outputs) or "none"
