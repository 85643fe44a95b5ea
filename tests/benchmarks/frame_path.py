"""CPU time for each frame of a file decoded and drawn into a slot: BGR frames against planes.

    python tests/benchmarks/frame_path.py [--rounds 5] [--repeat 2] [--show] [CLIP...]

Without a clip it makes H.264 of 640x480, 1280x720 and 1920x1080 with some grain. ``bgr`` is what
``pipeline/sources/file.py`` does without PyAV, ``planes`` what it does with it, the last the same
with one decoder thread. The readers take turns, each run in a process of its own. The slot has
320x320 pixels, letterboxed. ``--show`` asks for each frame's BGR image, too.
Prints medians, extremes and ratios of user and system time of the whole process while it
reads; and wall time, which is another matter on a machine that is shared.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, cast

import av
import numpy as np

from pipeline.clock import MonotonicClock
from pipeline.memory.frame import FramePool
from pipeline.preprocess.preprocessor import Preprocessor, PreprocessSettings
from pipeline.sources import SourceSettings, file
from pipeline.sources import pyav_frames as images
from pipeline.sources.synthetic import synthetic_frame

__all__: list[str] = []

READERS = ("bgr", "planes", "planes, 1 thread")
SIZES = {(640, 480): 1_500_000, (1280, 720): 4_000_000, (1920, 1080): 8_000_000}
FRAMES = 120


class Spec(NamedTuple):
    """What preprocess reads of a tensor spec."""

    name: str = "image"
    dtype: Any = np.uint8
    shape: tuple[int, ...] = (1, 320, 320, 3)
    layout: str = "NHWC"
    strides: tuple[int, ...] = (320 * 320 * 3, 320 * 3, 3, 1)


def play(path: str, repeat: int, show: bool) -> int:
    """From the file into the slot; the number of frames."""
    reader = file.FileReader(SourceSettings(uri=path, loop=True), MonotonicClock())
    form = reader.open()
    pool, slot = FramePool(form, 2), np.zeros(Spec().shape, np.uint8)
    preprocess = Preprocessor(PreprocessSettings())
    preprocess.open(form, cast(Any, Spec()))
    frames = FRAMES * repeat
    for _ in range(frames):
        reader.grab()
        frame = pool.try_acquire()
        assert frame is not None
        reader.retrieve(frame.pixels)
        preprocess.process(frame.pixels, slot, 0)
        if show:
            frame.view()
        frame.release()
    reader.close()
    return frames


def measure(name: str, path: str, repeat: int, show: bool) -> tuple[float, float]:
    """Milliseconds of CPU and of wall time for each frame, in this process."""
    images.LEAST_PIXELS = 0  # of any clip
    if name == "bgr":
        setattr(file, "_movie", lambda *_: None)  # noqa: B010
    elif name == "planes, 1 thread":
        setattr(file, "_decoder_threads", lambda: 1)  # noqa: B010
    play(path, 1, show)  # libraries and caches are warm
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    frames = play(path, repeat, show)
    after, ended = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent / frames * 1e3, (ended - began) / frames * 1e3


def _make(path: str, width: int, height: int, bit_rate: int) -> None:
    codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    grain = np.random.default_rng(1).integers(-12, 13, (height, width, 3), dtype=np.int16)
    with av.open(path, "w") as made:
        stream = cast(av.VideoStream, made.add_stream(codec, rate=25))
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.bit_rate = bit_rate
        for number in range(FRAMES):
            moved = np.roll(grain, (3 * number, 5 * number), (0, 1))
            image = np.clip(synthetic_frame(number, width, height) + moved, 0, 255)
            frame = av.VideoFrame.from_ndarray(image.astype(np.uint8), format="bgr24")
            made.mux(stream.encode(frame))
        made.mux(stream.encode())


def _compare(path: str, rounds: int, more: list[str]) -> None:
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in READERS}
    for _ in range(rounds):
        for name, times in found.items():
            command = [sys.executable, __file__, "--run", name, *more, path]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            times.append(tuple(float(word) for word in done.stdout.split()))
    base = statistics.median(cpu for cpu, _ in found["bgr"])
    print(f"{Path(path).name}: ms a frame, medians of {rounds} runs")  # noqa: T201
    for name, times in found.items():
        cpu, wall = (statistics.median(column) for column in zip(*times, strict=True))
        spread = f"{min(times)[0]:.2f} to {max(times)[0]:.2f}"
        print(f"  {name:18} cpu {cpu:6.3f} ({spread}) {cpu / base:.2f}  wall {wall:6.3f}")  # noqa: T201


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--run", choices=READERS)
    parser.add_argument("clips", nargs="*")
    given = parser.parse_args()
    if given.run:
        print(*measure(given.run, given.clips[0], given.repeat, given.show))  # noqa: T201
        return
    with tempfile.TemporaryDirectory() as folder:
        clips = given.clips
        if not clips:
            for (width, height), bit_rate in SIZES.items():
                clips.append(str(Path(folder) / f"{height}p.mp4"))
                _make(clips[-1], width, height, bit_rate)
        more = ["--repeat", str(given.repeat), *(["--show"] if given.show else [])]
        for clip in clips:
            _compare(clip, given.rounds, more)


if __name__ == "__main__":
    main()
