"""OpenVINO's own ``AsyncInferQueue``: frames are started from one loop, a callback takes results.

The model has its preprocessing in the graph. Two requests on two streams: one stream takes more
CPU time, a third request and the throughput hint change nothing. OpenCV decodes with its own
number of threads, so that decoding overlaps with the rest of the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import openvino

if TYPE_CHECKING:
    from tests.benchmarks.peers.common import Job

__all__ = ["run"]


def run(job: Job) -> None:
    """Read, draw and start on this thread; finish in the queue's callback."""
    more = {
        "PERFORMANCE_HINT": job.option("hint", "LATENCY"),
        "NUM_STREAMS": job.option("streams", "2"),
    }
    compiled = openvino.Core().compile_model(job.model(), "CPU", job.properties(**more))
    names = [port.any_name for port in compiled.outputs]
    waiting = openvino.AsyncInferQueue(compiled, int(job.option("requests", "2")))

    def finished(request: Any, _: Any) -> None:
        job.finish({name: request.get_tensor(name).data for name in names})

    waiting.set_callback(finished)
    capture = cv2.VideoCapture(job.clip)
    while True:
        good, frame = capture.read()
        if not good:
            break
        small = cv2.resize(frame, (job.side, job.side))
        # The queue copies the image into the request's own tensor.
        waiting.start_async([cv2.cvtColor(small, cv2.COLOR_BGR2RGB)[None]])
    waiting.wait_all()
