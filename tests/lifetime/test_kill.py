"""A process that is killed leaves results that can be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import av
import pytest

from tests.waiting import until

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
  - {kind: video, path: out.VIDEO, fps: 25, codec: CODEC}
""".replace("OUTPUT", "o" * 2000)


def killed(folder: Path, ending: str, lines: int, codec: str) -> None:
    """Run until about so many results are written, then kill."""
    (folder / "camera.yaml").write_text(CONFIG.replace("VIDEO", ending).replace("CODEC", codec))
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


@pytest.mark.parametrize(
    ("ending", "lines", "codec"),
    [
        ("mp4", 80, "avc1"),
        ("mp4", 133, "mp4v"),
        ("mkv", 80, "avc1"),
        ("webm", 80, "VP80"),
        ("mkv", 80, "VP90"),
        ("mp4", 80, "hev1"),
        ("mp4", 80, "AV01"),
        ("avi", 80, "MJPG"),
        ("ts", 80, "avc1"),
    ],
)
def test_what_was_written_before_a_kill_can_be_read(
    tmp_path: Path, ending: str, lines: int, codec: str
) -> None:
    killed(tmp_path, ending, lines, codec)
    text = (tmp_path / "out.jsonl").read_bytes()
    assert text.endswith(b"\n")
    results = [json.loads(line) for line in text.splitlines()]
    assert len(results) >= lines / 2  # a line is between 2000 and 4000 bytes long
    assert [result["sequence"] for result in results] == list(range(len(results)))
    frames = 0
    with av.open(str(tmp_path / f"out.{ending}")) as video, suppress(av.FFmpegError):
        for frame in video.decode(video=0):
            assert (frame.width, frame.height) == (320, 240)
            frames += 1
    # All but those of the last second, and those that still waited for this sink.
    assert frames >= 25
    assert frames % 25 == 0 or ending != "mp4"
