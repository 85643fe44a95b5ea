"""Video through a pipe: containers and raw frames, their end, and a stop while nothing comes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.clock import MonotonicClock
from pipeline.errors import ConfigError, SourceError
from pipeline.memory.frame import Image
from pipeline.sources import kind_of, make_reader
from pipeline.sources.synthetic import synthetic_frame
from tests.unit.playing import WATCHDOG, assert_alike, play, settings


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.fixture
def standard_input() -> Any:
    """A pipe in place of standard input; its writing end."""
    kept = os.dup(0)
    read, write = os.pipe()
    os.dup2(read, 0)
    os.close(read)
    yield write
    os.dup2(kept, 0)
    os.close(kept)


def feeding(write: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


def test_a_container_comes_through_a_fifo(
    fifo: Path, streamable: bytes, decoded: list[Image]
) -> None:
    assert kind_of(settings(fifo)) == "pipe"
    feeder = feeding(lambda: fifo.write_bytes(streamable))
    frames, error = play(make_reader(settings(fifo), MonotonicClock()))
    feeder.join(WATCHDOG)
    assert (len(frames), error) == (120, None)
    for frame, expected in zip(frames, decoded, strict=True):
        assert_alike(frame, expected)


@pytest.mark.parametrize("uri", ["-", "pipe:0", "/dev/stdin"])
def test_raw_frames_come_through_standard_input(uri: str, standard_input: int) -> None:
    images = [synthetic_frame(number, 64, 48) for number in range(5)]

    def write() -> None:
        with open(standard_input, "wb") as file:
            file.writelines(image.tobytes() for image in images)

    feeder = feeding(write)
    given = settings(uri, format="bgr24", width=64, height=48, fps=10)
    frames, error = play(make_reader(given, MonotonicClock()))
    feeder.join(WATCHDOG)
    assert error is None
    np.testing.assert_array_equal(frames, images)


def test_a_stop_is_heard_while_nothing_comes(fifo: Path) -> None:
    reader = make_reader(settings(fifo), MonotonicClock())
    ended = []

    def read() -> None:
        with pytest.raises(SourceError):
            reader.open()
        ended.append(True)

    with open(os.open(fifo, os.O_RDWR), "wb"):  # a writer that says nothing
        opening = feeding(read)
        reader.interrupt()
        opening.join(WATCHDOG)
        assert ended


def test_what_is_no_video_is_named(fifo: Path) -> None:
    feeder = feeding(lambda: fifo.write_bytes(b"some words\n"))
    with pytest.raises(SourceError, match=r"pipe: no video that can be read from a pipe"):
        make_reader(settings(fifo), MonotonicClock()).open()
    feeder.join(WATCHDOG)


@pytest.mark.parametrize(
    ("more", "told"),
    [({"loop": True}, "^loop: "), ({"format": "nv12", "width": 64}, "^format: ")],
)
def test_what_a_pipe_cannot_do_is_refused(more: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make_reader(settings("-", **more), MonotonicClock())
