"""GStreamer as tutorials have it: scale, convert, pull an image from appsink, infer.

Scaling comes first, which is the cheaper order. Elements have their defaults, but the sink does
not wait for an image's time. The model's float32 input is made of the image's bytes with NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import openvino

if TYPE_CHECKING:
    from tests.benchmarks.peers.common import Job

__all__ = ["run"]

_PIPELINE = (
    'filesrc location="{clip}" ! qtdemux ! h264parse ! avdec_h264 ! videoconvert ! videoscale '
    "! video/x-raw,format=RGB,width={side},height={side} "
    "! appsink name=images sync=false max-buffers=4"
)


def run(job: Job) -> None:
    """Pull, prepare, infer and postprocess on this thread; GStreamer decodes on its own."""
    properties = job.properties(PERFORMANCE_HINT=job.option("hint", "LATENCY"))
    compiled = openvino.Core().compile_model(job.model(in_graph=False), "CPU", properties)
    request = compiled.create_infer_request()
    names = [port.any_name for port in compiled.outputs]
    description = _PIPELINE.format(clip=job.clip, side=job.side)
    for image in job.beside("appsink").make_images(description):
        rgb = image.reshape(job.side, job.side, 3)
        request.infer([(rgb.astype(np.float32) / 255).transpose(2, 0, 1)[None]])
        job.finish({name: request.get_tensor(name).data for name in names})
