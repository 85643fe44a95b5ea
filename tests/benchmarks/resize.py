"""The native resizers against OpenCV's: CPU time of a frame resized to 320x320.

    python tests/benchmarks/resize.py

Both take turns in one process on one thread. Prints medians in ms, and
OpenCV's as a multiple of ours.
"""

from __future__ import annotations

import statistics
import time

import cv2
import numpy as np

from pipeline.memory.frame import FrameFormat, Image
from pipeline.preprocess.preprocessor import make_resizer
from pipeline.preprocess.resize import Area, Resizer
from pipeline.preprocess.resize_opencv import make_opencv_resizer

__all__: list[str] = []

SIDE = 320
ROUNDS, REPEATS = 60, 6


def cpu_ms(resizer: Resizer, pixels: Image, into: Image) -> float:
    """Mean CPU time of a few frames."""
    resizer.resize(pixels, into)
    began = time.thread_time()
    for _ in range(REPEATS):
        resizer.resize(pixels, into)
    return (time.thread_time() - began) / REPEATS * 1e3


def main() -> None:
    """Compare both for the usual sizes."""
    cv2.setNumThreads(1)
    into = np.empty((SIDE, SIDE, 3), np.uint8)
    random = np.random.default_rng(1)
    form: FrameFormat
    for width, height in ((640, 480), (1280, 720), (1920, 1080), (3840, 2160)):
        area = Area(slice(0, height), slice(0, width), SIDE, SIDE)
        for form in (FrameFormat(width, height), FrameFormat(width, height, pixels="i420")):
            pixels = random.integers(0, 256, form.shape, np.uint8)
            theirs = make_opencv_resizer(form, area, "bgr", "linear")
            ours = make_resizer(form, area, "bgr", "linear")
            pairs = [
                (cpu_ms(theirs, pixels, into), cpu_ms(ours, pixels, into)) for _ in range(ROUNDS)
            ]
            opencv, native = (statistics.median(side) for side in zip(*pairs, strict=True))
            print(  # noqa: T201
                f"{width}x{height} {form.pixels:4}  OpenCV {opencv:.3f}  native {native:.3f}  "
                f"{statistics.median(a / b for a, b in pairs):.2f}"
            )


if __name__ == "__main__":
    main()
