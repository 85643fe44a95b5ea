"""Files with wrong bytes: each is played or refused, in time, in bounded memory, in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import av
import cv2
import pytest

from pipeline.sources.synthetic import synthetic_frame
from tests.fuzz.mutate import count_of, mutated
from tests.fuzz.player import Player, fault_of

COUNT = count_of("media", 60)
VIDEOS = {"mp4": "mpeg4", "mkv": "mpeg4", "ts": "mpeg2video", "avi": "mjpeg"}
ENDINGS = (*VIDEOS, "jpg", "png")


def video(path: Path, codec: str) -> None:
    with av.open(str(path), "w") as file:
        stream = cast("av.VideoStream", file.add_stream(codec, rate=25))
        stream.width, stream.height = 96, 64
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        for number in range(12):
            image = synthetic_frame(number, 96, 64)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="bgr24")))
        file.mux(stream.encode())


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    folder = tmp_path_factory.mktemp("originals")
    for ending, codec in VIDEOS.items():
        video(folder / f"a.{ending}", codec)
    for ending in ("jpg", "png"):
        cv2.imwrite(str(folder / f"a.{ending}"), synthetic_frame(3, 96, 64))
    return lambda ending: (folder / f"a.{ending}").read_bytes()


def test_spoilt_files_are_played_or_refused(
    original: Callable[[str], bytes], tmp_path: Path
) -> None:
    faults, played = [], 0
    player = Player()
    for seed in range(COUNT):
        ending = ENDINGS[seed % len(ENDINGS)]
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = folder / f"a.{ending}"
        path.write_bytes(mutated(original(ending), seed))
        answer = player.play(path if ending in VIDEOS else folder)
        played += answer.get("frames", 0) > 0
        if fault := fault_of(answer):
            faults.append(f"seed {seed}, {ending}: {fault}")
        path.unlink()
    printed = player.close()
    assert not faults, "\n".join(faults)
    assert printed == ""
    assert 0 < played < COUNT
