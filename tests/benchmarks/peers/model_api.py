"""OpenVINO Model API (``openvino-model-api``): its AsyncPipeline around a wrapper of our own.

The wrapper prepares the image with cv2 for the model that has its preprocessing in the graph,
which takes less than resizing in the graph as the library's image models do. The loop is the one
of its examples: submit while a request is free, else wait for one, and take what is finished.
Two requests on two streams; one stream takes more CPU time, a third request brings nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import cv2
import openvino

if TYPE_CHECKING:
    from tests.benchmarks.peers.common import Job

__all__ = ["run"]


def run(job: Job) -> None:
    """Read, submit and finish on this thread."""
    pipeline = importlib.import_module("model_api.pipelines").AsyncPipeline(_model(job))
    capture = cv2.VideoCapture(job.clip)
    submitted = taken = 0
    playing = True
    while playing or taken < submitted:
        while taken < submitted and (found := pipeline.get_result(taken)):
            job.finish(found[0])
            taken += 1
        if not playing:
            pipeline.await_all()
        elif pipeline.is_ready():
            playing, frame = capture.read()
            if playing:
                pipeline.submit_data(frame, submitted)
                submitted += 1
        else:
            pipeline.await_any()


def _model(job: Job) -> Any:
    models = importlib.import_module("model_api.models.model")
    adapters = importlib.import_module("model_api.adapters")
    properties = job.properties(
        PERFORMANCE_HINT=job.option("hint", "LATENCY"), NUM_STREAMS=job.option("streams", "2")
    )
    adapter = adapters.OpenvinoAdapter(
        openvino.Core(),
        job.model(),
        plugin_config=properties,
        max_num_requests=int(job.option("requests", "2")),
    )

    def base_preprocess(self: Any, inputs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        small = cv2.resize(inputs, (job.side, job.side))
        return {"image": cv2.cvtColor(small, cv2.COLOR_BGR2RGB)[None]}, {}

    def postprocess(self: Any, outputs: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
        return outputs

    members = {
        "__model__": "Peer",
        "base_preprocess": base_preprocess,
        "postprocess": postprocess,
    }
    return type("Wrapper", (models.Model,), members)(adapter)
