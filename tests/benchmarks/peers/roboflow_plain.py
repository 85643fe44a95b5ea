"""``streamvision`` as Roboflow's examples have it: the logic infers, with all settings as they are.

Reading, the logic and the sink have a thread each. The model's float32 input is prepared by hand
as in ``plain``; the sink gets the outputs and postprocesses.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import openvino

if TYPE_CHECKING:
    from tests.benchmarks.peers.common import Job

__all__ = ["run"]


def run(job: Job) -> None:
    """Start the pipeline and let it play the file to its end."""
    properties = job.properties(PERFORMANCE_HINT=job.option("hint", "LATENCY"))
    compiled = openvino.Core().compile_model(job.model(in_graph=False), "CPU", properties)
    names = [port.any_name for port in compiled.outputs]

    def infer(frames: list[Any]) -> list[Any]:
        results = []
        for frame in frames:
            rgb = cv2.cvtColor(cv2.resize(frame.image, (job.side, job.side)), cv2.COLOR_BGR2RGB)
            found = compiled([(rgb.astype(np.float32) / 255).transpose(2, 0, 1)[None]])
            results.append({name: found[name] for name in names})
        return results

    def finish(outputs: Any, _: Any) -> None:
        job.finish(outputs)

    module = importlib.import_module("streamvision.stream.pipeline")
    pipeline = module.InferencePipeline.init_with_custom_logic(
        video_reference=job.clip, on_video_frame=infer, on_prediction=finish
    )
    pipeline.start(use_main_thread=True)
    pipeline.join()
