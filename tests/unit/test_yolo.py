"""YOLO decoders against an independent decode, box by box, of random and of spoilt outputs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.contracts import FrameMapping
from pipeline.errors import ConfigError, ModelError
from pipeline.memory.results import Detections
from pipeline.postprocess import PostprocessSettings, make_postprocess
from tests.unit.test_postprocess import Spec

SIZE = 320
MAPPING = FrameMapping(0.5, 0.5, 0, 40, 640, 480)  # 640x480 in 320x320, letterboxed
INPUT = Spec("images", (1, SIZE, SIZE, 3), np.uint8, "NHWC")
LABELS = tuple("abcdefg")
Box = tuple[list[float], float, int]


def decoder(kind: Any, shape: tuple[int, ...], **more: Any) -> Any:
    """An open decoder for an output of this shape."""
    made = make_postprocess(PostprocessSettings(kind=kind, **more))
    made.open([INPUT], [Spec("output0", shape)])  # type: ignore[list-item]
    return made


def iou(one: list[float], other: list[float]) -> float:
    """Intersection over union of two boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return width * height / (sum(areas) - width * height)


def by_hand(rows: npt.NDArray[Any], before: int, threshold: float, limit: float) -> list[Box]:
    """Boxes of rows of values, one after the other, and suppression in each class."""
    found: list[Box] = []
    for row in rows:
        x, y, width, height = map(float, row[:4])
        scores = row[before:] * (row[4] if before == 5 else 1)
        score = float(scores.max())
        if score < threshold:
            continue
        box = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
        box = [(value - offset) / 0.5 for value, offset in zip(box, (0, 40, 0, 40), strict=True)]
        box = [min(max(value, 0), most) for value, most in zip(box, (640, 480) * 2, strict=True)]
        if box[2] > box[0] and box[3] > box[1]:
            found.append((box, score, int(scores.argmax())))
    kept: list[Box] = []
    for each in sorted(found, key=lambda each: -each[1]):
        if all(each[2] != other[2] or iou(each[0], other[0]) <= limit for other in kept):
            kept.append(each)
    return kept


def random_rows(seed: int, before: int, count: int = 300) -> npt.NDArray[np.float32]:
    """Values of so many boxes, about a fifth of them likely."""
    random = np.random.default_rng(seed)
    rows = np.empty((count, before + len(LABELS)), np.float32)
    rows[:, :2] = random.uniform(0, SIZE, (count, 2))
    rows[:, 2:4] = random.uniform(5, 150, (count, 2))
    rows[:, 4:] = random.uniform(0, 1, (count, rows.shape[1] - 4)) ** 12
    return rows


def check(found: Detections, expected: list[Box]) -> None:
    """The same boxes in the same order."""
    assert len(found) == len(expected)
    for index, (box, score, label) in enumerate(expected):
        np.testing.assert_allclose(found.boxes[index], box, rtol=1e-4, atol=1e-2)
        assert found.scores[index] == pytest.approx(score, rel=1e-5)
        assert found.label(index) == LABELS[label]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("kind", "before"), [("yolov8", 4), ("yolov5", 5)])
@pytest.mark.parametrize("seed", range(4))
def test_boxes_are_those_of_a_decode_by_hand(
    seed: int, kind: str, before: int, transposed: bool
) -> None:
    rows = random_rows(seed, before)
    output = rows[None] if transposed else np.ascontiguousarray(rows.T)[None]
    threshold = 0.3 if before == 4 else 0.1
    decode = decoder(kind, output.shape, threshold=threshold, iou_threshold=0.4, labels=LABELS)
    expected = by_hand(rows, before, threshold, 0.4)
    assert 5 < len(expected) < 300
    check(decode.process([output], MAPPING), expected)


def test_a_layout_without_labels_is_told_by_its_shape() -> None:
    rows = random_rows(1, 4)
    for output in (rows[None], np.ascontiguousarray(rows.T)[None]):
        found = decoder("yolov8", output.shape, threshold=0.3).process([output], MAPPING)
        assert len(found) == len(by_hand(rows, 4, 0.3, 0.3))
        assert found.names == ()


def test_half_precision_is_taken() -> None:
    rows = random_rows(3, 4).astype(np.float16)
    made = make_postprocess(PostprocessSettings(kind="yolov8", threshold=0.3, labels=LABELS))
    made.open([INPUT], [Spec("output0", (1, *rows.shape), np.float16)])  # type: ignore[list-item]
    found = made.process([rows[None]], MAPPING)
    assert len(found) == len(by_hand(rows.astype(np.float32), 4, 0.3, 0.3))
    assert [found.boxes.dtype, found.scores.dtype] == ["float32", "float32"]


def test_end_to_end_rows_are_taken_as_they_are() -> None:
    rows = np.array(
        [[10, 50, 60, 120, 0.4, 2], [20, 60, 30, 70, 0.9, 1], [11, 51, 61, 121, 0.39, 2],
         [0, 0, 0, 0, 0, 0], [5, 45, 9, 49, 0.2, 0]], np.float32
    )  # fmt: skip
    decode = decoder("yolo_end2end", (1, 5, 6), threshold=0.3, labels=LABELS)
    found = decode.process([rows[None]], MAPPING)
    assert [found.label(i) for i in range(len(found))] == ["b", "c", "c"]
    np.testing.assert_allclose(found.boxes[0], [40, 40, 60, 60])


def test_classes_and_numbers_are_limited() -> None:
    rows = random_rows(2, 4)
    more: dict[str, Any] = {"threshold": 0.3, "labels": LABELS, "iou_threshold": 1.0}
    everything = decoder("yolov8", (1, *rows.shape), **more).process([rows[None]], MAPPING)
    some = decoder("yolov8", (1, *rows.shape), classes=("b", 4), **more)
    found = some.process([rows[None]], MAPPING)
    expected = [i for i, label in enumerate(everything.labels) if label in (1, 4)]
    np.testing.assert_array_equal(found.boxes, everything.boxes[expected])
    few = decoder("yolov8", (1, *rows.shape), max_detections=3, **more)
    np.testing.assert_array_equal(few.process([rows[None]], MAPPING).boxes, everything.boxes[:3])
    with pytest.raises(ConfigError, match=r"^classes\.1: unknown class 'z'; known: a, b"):
        decoder("yolov8", (1, *rows.shape), classes=("b", "z"), **more)


@pytest.mark.parametrize(
    ("kind", "shapes", "more", "message"),
    [
        ("yolov8", [(1, 84, 8400), (1, 32, 160, 160)], {"labels": LABELS}, "7 labels need 11"),
        ("yolov8", [(1, 4, 8400)], {}, "no scores of classes"),
        ("yolov8", [(1, 84, 10), (1, 84, 20)], {}, "needs one float output"),
        ("yolov5", [(1, 3, 80, 80, 85)], {}, r"\[1, 3, 80, 80, 85\]"),
        ("yolo_end2end", [(1, 300, 7)], {}, r"needs a float output \[1, N, 6\]"),
        ("yolo_end2end", [], {}, "the model has none"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_with_its_shapes(
    kind: Any, shapes: list[tuple[int, ...]], more: dict[str, Any], message: str
) -> None:
    made = make_postprocess(PostprocessSettings(kind=kind, **more))
    outputs: Any = [Spec(f"output{i}", shape) for i, shape in enumerate(shapes)]
    with pytest.raises(ModelError, match=message):
        made.open([INPUT], outputs)  # type: ignore[list-item]


@pytest.mark.parametrize("kind", ["yolov8", "yolov5", "yolo_end2end"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 0.0, "random"])
def test_spoilt_outputs_are_no_error_and_no_box_is_spoilt(kind: str, value: Any) -> None:
    shape = (1, 500, 6) if kind == "yolo_end2end" else (1, 2000, 12)
    output = np.full(shape, 0.0 if value == "random" else value, np.float32)
    if value == "random":
        output[...] = np.random.default_rng(0).standard_normal(shape) * 1e30
        output[0, ::3] = np.nan
    decode = decoder(kind, shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = decode.process([output], MAPPING)
    for array in (found.boxes, found.scores, found.labels):
        assert np.isfinite(array).all()
    assert (found.boxes >= 0).all()
    assert (found.boxes[:, 2:] <= (640, 480)).all()
