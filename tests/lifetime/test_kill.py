"""A process that is killed leaves results that can be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import pytest

if TYPE_CHECKING:
    from tests.waiting import until
else:
    from waiting import until

ROOT = Path(__file__).parents[2]

# Two sinks that write all the time; a key frame of the video comes each 25 frames.
CONFIG = """\
source: {uri: "synthetic:", width: 320, height: 240}
model:
  engine: simulated
  input_shape: [1, 48, 64, 3]
  options: {latency_ms: 1, outputs: [{name: OUTPUT, shape: [8]}]}
sinks:
  - {kind: jsonl, path: out.jsonl}
  - {kind: video, path: out.VIDEO, fps: 25}
""".replace("OUTPUT", "o" * 2000)


def killed(folder: Path, ending: str, lines: int) -> None:
    """Run until about so many results are written, then kill."""
    (folder / "camera.yaml").write_text(CONFIG.replace("VIDEO", ending))
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "camera.yaml", "--quiet"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    jsonl, video = folder / "out.jsonl", folder / f"out.{ending}"
    try:
        until(lambda: jsonl.exists() and jsonl.stat().st_size > 2000 * lines)
        until(lambda: video.stat().st_size > 10_000)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("ending", "lines"), [("mp4", 80), ("mp4", 133), ("mkv", 80)])
def test_what_was_written_before_a_kill_can_be_read(
    tmp_path: Path, ending: str, lines: int
) -> None:
    killed(tmp_path, ending, lines)
    text = (tmp_path / "out.jsonl").read_bytes()
    assert text.endswith(b"\n")
    results = [json.loads(line) for line in text.splitlines()]
    assert len(results) >= lines / 2  # a line is between 2000 and 4000 bytes long
    assert [result["sequence"] for result in results] == list(range(len(results)))
    capture = cv2.VideoCapture(str(tmp_path / f"out.{ending}"))
    frames = 0
    while True:
        ok, frame = capture.read()
        if not ok:
            break
        assert frame.shape == (240, 320, 3)
        frames += 1
    capture.release()
    # All but those of the last second, and those that still waited for this sink.
    assert frames >= 25
    assert frames % 25 == 0 or ending == "mkv"
