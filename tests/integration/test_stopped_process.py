"""A process that was stopped for a while has neither a hung engine nor a lost camera."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

# The engine takes longer than a step of its deadline is late; the camera's frames come slowly.
PROGRAM = """
import asyncio, json, time
from pipeline import Pipeline
from pipeline.memory.frame import FrameFormat

class Slow:
    live = reopenable = True
    def open(self): return FrameFormat(64, 48)
    def grab(self):
        time.sleep(0.3)
        return time.monotonic_ns()
    def retrieve(self, buffer): buffer[...] = 1
    def interrupt(self): pass
    def close(self): pass

async def main():
    camera = {"uri": "udp://127.0.0.1:9", "read_timeout_s": 0.9, "stale_after_s": 0}
    model = {"engine": "simulated", "input_shape": [1, 48, 64, 3], "run_timeout_s": 0.9,
             "options": {"latency_ms": 300}}
    async with Pipeline({"source": camera, "model": model}, frames=Slow()) as pipe:
        async for result in pipe:
            print(result.sequence, flush=True)
            if result.sequence >= 12:
                break
        stats = pipe.stats()
        print(json.dumps([stats.events, stats.dropped]), flush=True)

asyncio.run(main())
"""


def test_a_process_that_was_stopped_goes_on() -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        try:
            for _ in range(3):
                assert process.stdout.readline().strip().isdigit()
            process.send_signal(signal.SIGSTOP)
            time.sleep(3)  # for much longer than all its deadlines
            process.send_signal(signal.SIGCONT)
            *_, last = process.communicate(timeout=60)[0].splitlines()
        finally:
            process.kill()
    events, dropped = json.loads(last)
    assert events == {"camera": {"connecting": 1, "live": 1}}
    assert not {"hung", "failed"} & dropped.keys()
