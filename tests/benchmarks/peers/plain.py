"""The loop that one writes first: read, resize, swap colors, to float, infer, postprocess.

One request with the latency hint, which is also OpenVINO's default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
import numpy as np
import openvino

if TYPE_CHECKING:
    from tests.benchmarks.peers.common import Job

__all__ = ["run"]


def run(job: Job) -> None:
    """Everything on one thread, one frame after another."""
    compiled = openvino.Core().compile_model(
        job.model(in_graph=False),
        "CPU",
        job.properties(PERFORMANCE_HINT=job.option("hint", "LATENCY")),
    )
    request = compiled.create_infer_request()
    names = [port.any_name for port in compiled.outputs]
    capture = cv2.VideoCapture(job.clip)
    while True:
        good, frame = capture.read()
        if not good:
            break
        small = cv2.resize(frame, (job.side, job.side))
        rgb = cv2.cvtColor(small, cv2.COLOR_BGR2RGB)
        image = (rgb.astype(np.float32) / 255).transpose(2, 0, 1)[None]
        request.infer([np.ascontiguousarray(image)])
        job.finish({name: request.get_tensor(name).data for name in names})
