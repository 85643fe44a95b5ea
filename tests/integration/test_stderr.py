"""Standard error that nobody reads holds up neither the pipeline nor its end."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until

# A camera that is lost all the time and tells so, beside one that works.
CONFIG = """\
cameras:
  front: {uri: "synthetic:", width: 64, height: 48, fps: 200}
  gone: {uri: "tcp://127.0.0.1:9", reconnect: {initial_s: 0.01, max_s: 0.01}}
model: {engine: simulated, input_shape: [1, 48, 64, 3], options: {latency_ms: 1}}
sinks: [{kind: jsonl, path: out.jsonl}]
drain_s: 1
"""
F_SETPIPE_SZ = 1031


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    """A pipe into which nothing more fits."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x")
    except BlockingIOError:
        os.set_blocking(writing, True)
    yield reading, writing
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("form", ["text", "json"])
def test_it_goes_on_and_ends_in_time(tmp_path: Path, full_pipe: tuple[int, int], form: str) -> None:
    (tmp_path / "camera.yaml").write_text(CONFIG)
    written = tmp_path / "out.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "camera.yaml", "--debug", "--log", form],
        cwd=tmp_path,
        stderr=full_pipe[1],
        stdout=subprocess.DEVNULL,
    )

    def lines() -> int:
        assert process.poll() is None
        return written.read_bytes().count(b"\n") if written.exists() else 0

    with process:
        try:
            until(lambda: lines() >= 1500)  # the status line is due in between, more than once
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()


def test_what_was_left_out_is_counted_once_somebody_reads() -> None:
    code = """
import asyncio
from pipeline.cli.terminal import Stderr
async def main():
    stream = Stderr()
    for number in range(5000):
        stream.write(f"{number:090d}\\n")
    print("written", flush=True)
    input()
    stream.write("the end\\n")
    await asyncio.to_thread(input)
asyncio.run(main())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "written\n"  # though nobody has read
    read: list[int] = []
    left_out = 0
    while len(read) + left_out < 5000:
        number, *rest = process.stderr.readline().removeprefix("warning: ").split()
        if rest:
            left_out += int(number)
        else:
            read.append(int(number))
    assert read == sorted(set(read))
    assert left_out > 1000
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stderr.readline() == "the end\n"
    process.communicate("\n", timeout=30)
    assert process.returncode == 0
