"""Threads by hand, as well as they can be tuned with cv2 and OpenVINO's Python API.

A thread reads into frame buffers that were made before, another one draws each frame into the
input tensor of a request that is free, and starts it; as soon as a request's turn comes again,
its outputs are taken out first. Nothing of a frame's size is allocated in Python.

Tried: a third request, OpenVINO's throughput hint (with two streams all one), one stream (more
CPU time), cv2's own threads (more CPU time), more decoder threads: they cost more than they bring
for small clips, but large ones need a second one to keep up.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import openvino

if TYPE_CHECKING:
    from tests.benchmarks.peers.common import Job

__all__ = ["run"]


def run(job: Job) -> None:
    """Read on one thread; draw, start, wait and postprocess on this one."""
    cv2.setNumThreads(int(job.option("cv_threads", "1")))
    requests, names = _requests(job)
    inputs = [request.get_input_tensor().data[0] for request in requests]
    outputs = [{name: request.get_tensor(name).data for name in names} for request in requests]
    small = np.empty((job.side, job.side, 3), np.uint8)
    full, empty = _reader(job)
    busy = [False] * len(requests)
    turn = 0
    while (frame := full.get()) is not None:
        if busy[turn]:
            requests[turn].wait()
            job.finish(outputs[turn])
        cv2.resize(frame, (job.side, job.side), dst=small)
        empty.put(frame)
        cv2.cvtColor(small, cv2.COLOR_BGR2RGB, dst=inputs[turn])
        requests[turn].start_async()
        busy[turn] = True
        turn = (turn + 1) % len(requests)
    for _ in requests:
        if busy[turn]:
            requests[turn].wait()
            job.finish(outputs[turn])
        turn = (turn + 1) % len(requests)


def _requests(job: Job) -> tuple[list[Any], list[str]]:
    streams = job.option("streams", "2")
    more = {"PERFORMANCE_HINT": job.option("hint", "LATENCY"), "NUM_STREAMS": streams}
    compiled = openvino.Core().compile_model(job.model(), "CPU", job.properties(**more))
    count = int(job.option("requests", "2"))
    names = [port.any_name for port in compiled.outputs]
    return [compiled.create_infer_request() for _ in range(count)], names


def _reader(job: Job) -> tuple[queue.SimpleQueue[Any], queue.SimpleQueue[Any]]:
    """Frames, then None; and where to give them back."""
    full: queue.SimpleQueue[Any] = queue.SimpleQueue()
    empty: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for _ in range(int(job.option("buffers", "4"))):
        empty.put(np.empty((job.height, job.width, 3), np.uint8))
    decoders = int(job.option("decoders", "1" if job.height < 720 else "2"))
    settings = [cv2.CAP_PROP_N_THREADS, decoders] if decoders else []
    capture = cv2.VideoCapture(job.clip, cv2.CAP_FFMPEG, settings)

    def read() -> None:
        while True:
            good, frame = capture.read(empty.get())
            if not good:
                full.put(None)
                return
            full.put(frame)

    threading.Thread(target=read, daemon=True).start()
    return full, empty
