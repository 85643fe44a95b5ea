"""``AsyncInferQueue`` as OpenVINO's samples have it: throughput hint, as many requests as it says.

The model's float32 input is prepared by hand as in ``plain``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import openvino

if TYPE_CHECKING:
    from tests.benchmarks.peers.common import Job

__all__ = ["run"]


def run(job: Job) -> None:
    """Read, prepare and start on this thread; finish in the queue's callback."""
    properties = job.properties(PERFORMANCE_HINT=job.option("hint", "THROUGHPUT"))
    compiled = openvino.Core().compile_model(job.model(in_graph=False), "CPU", properties)
    names = [port.any_name for port in compiled.outputs]
    waiting = openvino.AsyncInferQueue(compiled, int(job.option("requests", "0")))

    def finished(request: Any, _: Any) -> None:
        job.finish({name: request.get_tensor(name).data for name in names})

    waiting.set_callback(finished)
    capture = cv2.VideoCapture(job.clip)
    while True:
        good, frame = capture.read()
        if not good:
            break
        rgb = cv2.cvtColor(cv2.resize(frame, (job.side, job.side)), cv2.COLOR_BGR2RGB)
        waiting.start_async([(rgb.astype(np.float32) / 255).transpose(2, 0, 1)[None]])
    waiting.wait_all()
