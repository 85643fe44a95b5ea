"""GStreamer demuxes, decodes, scales and converts; appsink's images go to OpenVINO requests.

Scaling comes before the conversion, so that only the small image is converted (that takes less
CPU time than ``videoconvertscale``, which does both). The decoder has one thread, which takes
less than two, except for large clips, and a queue after it. The image is copied into the input
tensor of a request that is free; the outputs of that request are taken out first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import openvino

if TYPE_CHECKING:
    from tests.benchmarks.peers.common import Job

__all__ = ["run"]

_PIPELINE = (
    'filesrc location="{clip}" ! qtdemux ! h264parse ! avdec_h264 max-threads={decoders} '
    "! queue max-size-buffers={ahead} max-size-bytes=0 max-size-time=0 "
    "! {scale} ! video/x-raw,format=RGB,width={side},height={side} "
    "! appsink name=images sync=false max-buffers={ahead} drop=false emit-signals=false"
)


def run(job: Job) -> None:
    """Pull images, start, wait and postprocess on this thread."""
    more = {
        "PERFORMANCE_HINT": job.option("hint", "LATENCY"),
        "NUM_STREAMS": job.option("streams", "2"),
    }
    compiled = openvino.Core().compile_model(job.model(), "CPU", job.properties(**more))
    names = [port.any_name for port in compiled.outputs]
    requests = [compiled.create_infer_request() for _ in range(int(job.option("requests", "2")))]
    inputs = [request.get_input_tensor().data.reshape(-1) for request in requests]
    outputs = [{name: request.get_tensor(name).data for name in names} for request in requests]
    turn, started = 0, 0
    description = _PIPELINE.format(
        clip=job.clip,
        decoders=job.option("decoders", "1" if job.height < 720 else "2"),
        ahead=job.option("ahead", "4"),
        scale=job.option("scale", "videoscale ! videoconvert"),
        side=job.side,
    )
    for image in job.beside("appsink").make_images(description):
        if started >= len(requests):
            requests[turn].wait()
            job.finish(outputs[turn])
        inputs[turn][:] = image
        requests[turn].start_async()
        started += 1
        turn = (turn + 1) % len(requests)
    for _ in range(min(started, len(requests))):
        requests[turn].wait()
        job.finish(outputs[turn])
        turn = (turn + 1) % len(requests)
