"""Roboflow's stream handling: ``streamvision``, whose InferencePipeline runs logic of one's own.

It reads on one thread, calls our logic on a second one and gives results to our sink on the main
thread. So the logic draws the frame into the input of a request that is free and starts it, and
the sink waits for it and postprocesses: all three overlap. Its buffers are cut down from 64
frames and 512 results, which only take memory here. Reports of each frame go nowhere, as there is
no watchdog. One decoder thread takes less CPU time than two; large clips need both.
"""

from __future__ import annotations

import importlib
import os
import queue
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import openvino

if TYPE_CHECKING:
    from tests.benchmarks.peers.common import Job

__all__ = ["run"]


def run(job: Job) -> None:
    """Start the pipeline and let it play the file to its end."""
    ahead = int(job.option("ahead", "8"))
    # It opens the file itself and leaves the decoder's threads to OpenCV.
    decoders = job.option("decoders", "1" if job.height < 720 else "2")
    os.environ["OPENCV_FFMPEG_THREADS"] = decoders
    module = importlib.import_module("streamvision.stream.pipeline")
    cv2.setNumThreads(int(job.option("cv_threads", "1")))
    idle, names = _requests(job)
    small = np.empty((job.side, job.side, 3), np.uint8)

    def start(frames: list[Any]) -> list[Any]:
        started = []
        for frame in frames:
            request = idle.get()
            cv2.resize(frame.image, (job.side, job.side), dst=small)
            cv2.cvtColor(small, cv2.COLOR_BGR2RGB, dst=request.get_input_tensor().data[0])
            request.start_async()
            started.append(request)
        return started

    def finish(request: Any, _: Any) -> None:
        request.wait()
        job.finish({name: request.get_tensor(name).data for name in names})
        idle.put(request)

    pipeline = module.InferencePipeline.init_with_custom_logic(
        video_reference=job.clip,
        on_video_frame=start,
        on_prediction=finish,
        predictions_queue_size=ahead,
        decoding_buffer_size=ahead,
    )
    pipeline.start(use_main_thread=True)
    pipeline.join()


def _requests(job: Job) -> tuple[queue.SimpleQueue[Any], list[str]]:
    more = {
        "PERFORMANCE_HINT": job.option("hint", "LATENCY"),
        "NUM_STREAMS": job.option("streams", "2"),
    }
    compiled = openvino.Core().compile_model(job.model(), "CPU", job.properties(**more))
    idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for _ in range(int(job.option("requests", "3"))):
        idle.put(compiled.create_infer_request())
    return idle, [port.any_name for port in compiled.outputs]
