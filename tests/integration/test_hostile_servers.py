"""Hostile and broken servers: each is a camera that is lost, and no other camera notices.

By default positions and times are bounded. With ``PIPELINE_HOSTILE=full`` in the environment a
connection ends after each byte, and each server stands alone beside the good camera.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import pytest

from pipeline import Pipeline
from pipeline.clock import MonotonicClock
from pipeline.errors import FormatChangedError, SourceError
from pipeline.sources import SourceSettings, make_reader
from pipeline.sources.synthetic import synthetic_frame
from tests.buffers import Buffer
from tests.integration.complaints import all_accounted_for, config, synthetic, times
from tests.servers.hostile import RTSP, TLS, http_answers
from tests.usage import resident

FULL = os.environ.get("PIPELINE_HOSTILE") == "full"
STEP = 1 if FULL else 61  # bytes from one cut to the next
SECONDS = 1.0  # that a server may take
GRACE = 10.0  # seconds more until something is a hang
_OK, _JPEG = cv2.imencode(".jpg", synthetic_frame(1, 64, 48))
IMAGE = _JPEG.tobytes()
NAMES = [
    *(f"http-{name}" for name in http_answers(IMAGE)),
    *(f"rtsp-{name}" for name in RTSP),
    *(f"{scheme}-{name}" for scheme in ("https", "rtsps", "tcp") for name in TLS),
]
TOGETHER = 1 if FULL else 8


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    folder = Path(__file__).parents[1]
    command = [sys.executable, "-m", "servers.run_hostile"]
    with subprocess.Popen(
        [*command, base64.b64encode(IMAGE).decode(), str(STEP)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(folder)},
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())
        finally:
            server.stdin.close()
            server.wait(GRACE)


def outcome(url: str, frames: int = 4) -> str:
    """What a reader makes of a server: why it was lost, or that it plays."""
    settings = SourceSettings(uri=url, open_timeout_s=SECONDS, read_timeout_s=SECONDS)
    reader = make_reader(settings, MonotonicClock())
    try:
        buffer = Buffer(reader.open())
        for _ in range(frames):
            if reader.grab() is None:
                return "ended"
            buffer.retrieve(reader)
    except FormatChangedError:
        return "another format"
    except SourceError as error:
        return str(error)
    finally:
        reader.close()
    return "plays"


def test_every_hostile_server_is_a_lost_camera_with_a_reason(urls: dict[str, str]) -> None:
    before = resident()

    def tried(name: str) -> tuple[str, str, float]:
        began = time.monotonic()
        return name, outcome(urls[name]), time.monotonic() - began

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(tried, NAMES))
    for name, told, seconds in found:
        assert seconds < 3 * SECONDS + GRACE, name
        assert "topsecret" not in told
        shown = urls[name].replace("u:topsecret", "***")
        assert told.startswith(f"{shown}: ") or told in ("plays", "another format"), (name, told)
    reasons = {name: told.partition("/live: ")[2] for name, told, _ in found}
    assert "no video in it that can be decoded" in reasons["rtsp-unknown-codec"]
    assert "max_pixels" in reasons["http-giant"]
    assert "not known here" in reasons["http-challenge"]
    assert "no HTTP address" in reasons["http-moved-nowhere"]
    assert "no host can have this name" in reasons["http-moved-name"]
    assert "from one address to another" in reasons["http-moved-round"]
    assert "did not answer" in reasons["http-drip"]
    assert resident() - before < 300 << 20


@pytest.mark.parametrize("scheme", ["http", "rtsp"])
def test_a_camera_that_closes_at_any_byte_is_lost(urls: dict[str, str], scheme: str) -> None:
    count = 1500 // STEP + 1
    with ThreadPoolExecutor(12) as threads:
        told = list(threads.map(outcome, [urls[f"{scheme}-cut"]] * count, [1] * count))
    shown = urls[f"{scheme}-cut"].replace("u:topsecret", "***")
    lost = [each for each in told if each.startswith(f"{shown}: ")]
    assert len(lost) + told.count("plays") == len(told)
    assert len(lost) > len(told) // 10


@pytest.mark.parametrize("first", range(0, len(NAMES), TOGETHER), ids=lambda first: NAMES[first])
async def test_a_good_camera_does_not_notice(urls: dict[str, str], first: int) -> None:
    names = [*NAMES[first : first + TOGETHER], "http-cut", "rtsp-cut"]
    limits = {"open_timeout_s": SECONDS, "read_timeout_s": SECONDS, "stale_after_s": 0.0}
    again = {"reconnect": {"initial_s": 0.05, "max_s": 0.1}}
    cameras = {name: {"uri": urls[name], **limits, **again} for name in names}
    before, gaps, last = resident(), [], None
    async with Pipeline(config(cameras={"good": synthetic(fps=30), **cameras})) as pipe:
        ends = time.monotonic() + 2.5 * SECONDS
        async with asyncio.timeout(30):
            async for result in pipe:
                if result.camera == "good":
                    now = time.monotonic()
                    gaps.append(now - (last or now))
                    last = now
                    if now >= ends and all(times(pipe, name, "connecting") for name in names):
                        break
        assert times(pipe, "good", "lost") == 0
        stopping = time.monotonic()
    assert time.monotonic() - stopping < 7
    assert max(gaps) < 1
    assert len(gaps) > 30
    assert all_accounted_for(pipe)
    assert resident() - before < 400 << 20
