"""Files with wrong bytes: each is played or refused, in time, in bounded memory, in one line."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import av
import cv2
import pytest

from pipeline.sources.synthetic import synthetic_frame

if TYPE_CHECKING:
    from tests.fuzz.mutate import count_of, mutated
else:
    sys.path.insert(0, str(Path(__file__).parent))
    from mutate import count_of, mutated

COUNT = count_of("media", 60)
SECONDS = 20.0
GROWTH_MB = 500
VIDEOS = {"mp4": "mpeg4", "mkv": "mpeg4", "ts": "mpeg2video", "avi": "mjpeg"}
ENDINGS = (*VIDEOS, "jpg", "png")


class Player:
    """The process that plays files; a new one where the last one died or hung."""

    def __init__(self, script: str = "play_files.py") -> None:
        self._script = Path(__file__).with_name(script)
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(self._script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def play(self, path: Path | str) -> dict[str, Any]:
        """How it ended; ``code`` where the process died, ``hung`` where it did not answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{path}\n")
        stdin.flush()
        ready, _, _ = select.select([stdout], [], [], 3 * SECONDS)
        line = stdout.readline() if ready else ""
        if line:
            return cast("dict[str, Any]", json.loads(line))
        self._process.kill()
        code = self._process.wait()
        self.close()
        self._start()
        return {"hung": True} if not ready else {"code": code}

    def close(self) -> str:
        """End it; what it printed beside its answers."""
        _, printed = self._process.communicate()
        return printed


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


def fault_of(answer: dict[str, Any]) -> str:
    """What must not be in an answer; empty when it is fine."""
    if "seconds" not in answer:
        return str(answer)
    if "traceback" in answer:
        return str(answer["traceback"])
    if "\n" in answer.get("error", ""):
        return f"more than a line: {answer['error']}"
    if answer["seconds"] > SECONDS or answer["growth"] > GROWTH_MB:
        return f"{answer['seconds']:.1f} s, {answer['growth']} MB"
    return ""


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
