"""Ctrl-C and SIGTERM on the command line: drained once, cancelled twice, never without limit."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pipeline._native") is None, reason="the native module is not built"
)

ENDLESS = """\
source: {uri: "synthetic:", width: 64, height: 48}
model: {engine: simulated, input_shape: [1, 48, 64, 3], options: {latency_ms: 2}}
sinks: [{kind: console}]
"""
Process = subprocess.Popen[str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start the command line with a configuration; whatever still lives is killed at the end."""
    started: list[Process] = []

    def begin(config: str, *arguments: str) -> Process:
        (tmp_path / "camera.yaml").write_text(config)
        paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline", "camera.yaml", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_drains_and_ends_with_0(
    start: Callable[..., Process], tmp_path: Path, number: signal.Signals
) -> None:
    process = start(ENDLESS, "--summary", "s.json")
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    told = json.loads((tmp_path / "s.json").read_text())
    assert told["results"] >= 1
    assert told["error"] is None
    assert told["results"] + sum(told["dropped"].values()) == told["frames"]


@pytest.mark.parametrize("signals", [1, 2, 3])
def test_stopping_is_bounded_while_the_engine_hangs(
    start: Callable[..., Process], signals: int
) -> None:
    options = "latency_ms: 2, hang_runs: [3]"
    process = start(ENDLESS.replace("latency_ms: 2", options) + "drain_s: 1\n")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    assert process.stdout.readline()  # two runs are through; the third one hangs
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline().startswith("stopping")
    if signals >= 2:
        process.send_signal(signal.SIGINT)
    if signals == 3:
        assert process.stderr.readline() == "cancelling\n"
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    if signals == 3:
        assert err == "error: ended at once, without closing anything\n"
    assert process.returncode == (4 if signals == 1 else 1), err
    if signals == 1:  # with two it may be cancelled before the third run has begun
        assert "error: did not stop in time and was abandoned: executor" in err
    assert "Traceback" not in err


def test_nothing_is_lost_where_nothing_was_in_flight(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")  # without a reader the sink waits in its open, and nothing flows
    process = start(ENDLESS.replace("console", "jsonl, path: pipe"), "--debug")
    said(process, "simulated on")
    process.send_signal(signal.SIGTERM)
    said(process, "stopping")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1, err
    assert "\nerror: cancelled\n" in err


def test_a_signal_while_starting_is_not_lost(start: Callable[..., Process], tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    process = start(ENDLESS.replace("console", "jsonl, path: pipe"))
    reader = os.open(fifo, os.O_RDONLY)  # returns once the sink is being opened
    try:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    finally:
        os.close(reader)
    assert process.returncode == 0, err
    assert "Traceback" not in err


def test_a_pipe_that_nobody_reads_is_not_waited_for(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    sinks = "{kind: jsonl, path: pipe}, {kind: console}"
    process = start(ENDLESS.replace("{kind: console}", sinks) + "drain_s: 300\n")
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 5, err
    assert "pipe: nobody reads this pipe" in err
    assert "abandoned" not in err


def run_text(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that is given as text, to its end."""
    return subprocess.run(
        [sys.executable, "-c", text, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# Sends a signal while the module that ARGV[1] names is about to be imported.
AT_IMPORT = """
import os, signal, sys

module, number, times, *sys.argv[1:] = sys.argv[1:]

class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == module and not hasattr(self, "sent"):
            self.sent = True
            for _ in range(int(times)):
                os.kill(os.getpid(), int(number))

sys.meta_path.insert(0, Sender())
from pipeline.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "module",
    ["asyncio", "pipeline.config.loading", "pydantic", "pipeline.service.service"],
)
@pytest.mark.parametrize("times", [1, 2])
def test_each_signal_counts_once_whatever_is_being_imported(
    tmp_path: Path, number: signal.Signals, module: str, times: int
) -> None:
    (tmp_path / "camera.yaml").write_text(ENDLESS.replace("console", "jsonl, path: out.jsonl"))
    command = [module, str(int(number)), str(times), "camera.yaml", "--quiet"]
    done = run_text(tmp_path, AT_IMPORT, *command)
    # The kernel keeps one signal of a kind at a time: two at once may come as one.
    assert done.returncode in ((0,) if times == 1 else (0, 1)), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["check", "devices"])
def test_a_signal_ends_a_short_command(tmp_path: Path, command: str) -> None:
    (tmp_path / "camera.yaml").write_text(ENDLESS)
    arguments = ["pipeline.cli.main", str(int(signal.SIGINT)), "1", command]
    done = run_text(tmp_path, AT_IMPORT, *arguments, *(["camera.yaml"] * (command == "check")))
    assert (done.returncode, done.stderr) == (1, "error: interrupted\n")


# A signal inside an ``exec`` of text, and one after the interpreter gave its handlers back.
ODD_MOMENTS = {
    "exec": """
import sys
from pipeline.signals import StopRequests
requests = StopRequests().__enter__()
requests.refuse_any()
try:
    exec("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
except KeyboardInterrupt:
    sys.exit(1)
""",
    "finalization": """
import os, signal, sys

class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):
        kill(pid, number)

late = Late()
sys.argv[1:] = ["check", "missing.yaml"]
from pipeline.__main__ import main
sys.exit(main() - 1)
""",
}


@pytest.mark.parametrize("moment", ODD_MOMENTS)
def test_a_signal_never_replaces_the_exit_code(tmp_path: Path, moment: str) -> None:
    done = run_text(tmp_path, ODD_MOMENTS[moment])
    assert done.returncode == 1, done.stderr


def test_an_ignored_hangup_stays_ignored(start: Callable[..., Process]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        process = start(ENDLESS)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    for _ in range(20):
        assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err


LOST = """\
cameras:
  gone: {uri: "http://127.0.0.1:PORT/", reconnect: {initial_s: 3600, max_s: 3600}}
  here: {uri: "synthetic:", width: 64, height: 48, fps: 50}
model: {engine: simulated, input_shape: [1, 48, 64, 3]}
sinks: [{kind: console}]
"""
RETRIED = """\
source: {uri: "synthetic:", width: 64, height: 48}
model: {engine: simulated, input_shape: [1, 48, 64, 3], options: {latency_ms: 2}}
sinks: [{kind: jsonl, path: /dev/full, on_error: retry}]
drain_s: 1
"""


def said(process: Process, what: str) -> str:
    """What it says on stderr until ``what`` is said."""
    assert process.stderr is not None
    lines = ""
    while what not in lines:
        line = process.stderr.readline()
        assert line, f"it ended without {what!r}: {lines}"
        lines += line
    return lines


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_lost_camera_is_not_waited_for(
    start: Callable[..., Process], tmp_path: Path, number: signal.Signals
) -> None:
    with socket.socket() as nobody:  # the port is taken, and connecting to it refused
        nobody.bind(("127.0.0.1", 0))
        text = LOST.replace("PORT", str(nobody.getsockname()[1]))
        process = start(text, "--summary", "s.json")
        said(process, "gone: lost")
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    told = json.loads((tmp_path / "s.json").read_text())
    assert told["cameras"]["gone"]["state"] == "ended"
    assert told["results"] + sum(told["dropped"].values()) == told["frames"]


@pytest.mark.parametrize("signals", [1, 2])
def test_a_sink_that_is_tried_again_and_again_is_not_waited_for(
    start: Callable[..., Process], signals: int
) -> None:
    process = start(RETRIED)
    said(process, "jsonl-0: failed")
    process.send_signal(signal.SIGTERM)
    said(process, "stopping")
    if signals == 2:
        process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 5, err
    assert re.search(r"error: jsonl: /dev/full: .* on device; [1-9]\d* results were not", err)
    assert "Traceback" not in err
