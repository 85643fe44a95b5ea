"""A YOLO model of one's own from a few lines of YAML: the exact head, on OpenVINO."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="OpenVINO is not installed"
)

# Boxes in input pixels of 320x320; their scores are those here times the mean of the image.
# In a process of its own, as OpenVINO's Python package is not to be loaded beside ours.
MODEL = """
import sys
import numpy as np
import openvino as ov
from openvino import opset13 as ops

kind, path = sys.argv[1:]
boxes = [(80, 100, 40, 30, 0.9, 1), (82, 101, 40, 30, 0.8, 1), (200, 200, 100, 50, 0.7, 0)]
if kind == "yolo_end2end":
    rows = np.zeros((300, 6), np.float32)
    for row, (x, y, w, h, score, label) in zip(rows, (boxes[0], boxes[2])):
        row[:] = x - w / 2, y - h / 2, x + w / 2, y + h / 2, score, label
    scores = slice(4, 5)
else:
    before = {"yolov8": 4, "yolov5": 5}[kind]
    rows = np.zeros((2100, before + 3), np.float32)
    for row, (x, y, w, h, score, label) in zip(rows[7:], boxes):
        row[:4] = x, y, w, h
        row[before + label] = score if kind == "yolov8" else 1
        row[4] = score if kind == "yolov5" else row[4]
    scores = slice(4, None) if kind == "yolov8" else slice(4, 5)
factors = np.zeros_like(rows)
factors[:, scores] = 1
image = ops.parameter([1, 3, 320, 320], ov.Type.f32, name="images")
mean = ops.reduce_mean(image, np.array([1, 2, 3]), keep_dims=False)
mean = ops.divide(mean, np.float32(255))
scaled = ops.multiply(ops.constant(rows * factors), mean)
output = ops.unsqueeze(ops.add(scaled, ops.constant(rows * (1 - factors))), np.array(0))
if kind == "yolov8":
    output = ops.transpose(output, np.array([0, 2, 1]))
ov.save_model(ov.Model([output], [image], "yolo"), path, compress_to_fp16=False)
"""


@pytest.mark.parametrize("kind", ["yolov8", "yolov5", "yolo_end2end"])
def test_boxes_come_from_a_few_lines(kind: str, tmp_path: Path) -> None:
    import cv2
    import numpy as np

    subprocess.run(
        [sys.executable, "-c", MODEL, kind, str(tmp_path / "model.xml")], check=True, timeout=120
    )
    cv2.imwrite(str(tmp_path / "white.png"), np.full((480, 640, 3), 255, np.uint8))
    (tmp_path / "camera.yaml").write_text(
        f"""\
source: {{uri: white.png}}
model: {{path: model.xml, options: {{inference_precision: f32}}}}
preprocess: {{pad: 255}}
postprocess: {{kind: {kind}, labels: [person, car, dog], threshold: 0.25, classes: [person, car]}}
sinks: [{{kind: jsonl, path: out.jsonl}}, {{kind: video, path: out.mkv}}]
"""
    )
    command = [sys.executable, "-m", "pipeline", "camera.yaml", "--quiet"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    found = json.loads(line)["detections"]
    # 640x480 in 320x320: halved, and 40 lines of padding above.
    assert [each["label"] for each in found] == ["car", "person"]
    assert [each["score"] for each in found] == pytest.approx([0.9, 0.7], abs=1e-4)
    assert found[0]["box"] == pytest.approx([120, 90, 200, 150], abs=0.1)
    assert found[1]["box"] == pytest.approx([300, 270, 500, 370], abs=0.1)
    assert (tmp_path / "out.mkv").stat().st_size > 500
