"""A terminal: results, log and status line share it, whatever it is able to do."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest

pytest.importorskip("pipeline._native")

ROOT = Path(__file__).parents[2]
CONFIG = """\
source: {uri: "synthetic:?fps=60", width: 64, height: 48, frames: 150}
model: {engine: simulated, input_shape: [1, 48, 64, 3]}
sinks: [SINK]
"""
RESULT = re.compile(r'camera \d+ \d+\.\d ms output float32 1x10|\{"camera":"camera",.*\}')
STATUS = re.compile(r"\d+ results  [\d.-]+ fps")


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pipeline", *arguments]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **more}


def ended(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, run to its end."""
    return subprocess.run(
        command_line(*arguments),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )


def written_to_a_terminal(folder: Path, sink: str, columns: int, **more: str) -> str:
    """All bytes that one terminal gets as standard output and standard error."""
    (folder / "camera.yaml").write_text(CONFIG.replace("SINK", sink))
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    process = subprocess.Popen(
        command_line("camera.yaml"), cwd=folder, env=environment(**more), stdout=slave, stderr=slave
    )
    os.close(slave)
    data = b""
    try:
        while part := os.read(master, 65536):
            data += part
    except OSError:  # the other side is closed
        pass
    finally:
        os.close(master)
    assert process.wait(60) == 0, data
    return data.decode()


def screen_lines(text: str) -> list[str]:
    """What stands on a wide screen in the end."""
    lines, line, column = [], "", 0
    for token in re.findall(r"\x1b\[K|.", text, re.DOTALL):
        if token == "\n":
            lines.append(line)
            line = ""
        elif token == "\r":
            column = 0
        elif token == "\x1b[K":
            line = line[:column]
        else:
            line = line[:column] + token + line[column + 1 :]
            column += 1
    return [*lines, line]


@pytest.mark.parametrize("sink", ["{kind: console}", '{kind: jsonl, path: "-"}'])
@pytest.mark.parametrize("columns", [40, 200])
def test_results_and_the_status_line_do_not_overwrite_each_other(
    tmp_path: Path, sink: str, columns: int
) -> None:
    text = written_to_a_terminal(tmp_path, sink, columns)
    lines = screen_lines(text)
    results = [line for line in lines if RESULT.fullmatch(line)]
    assert len(results) > 50  # a busy machine drops some
    end = next(i for i, line in enumerate(lines) if line.startswith("engine "))
    assert lines[:end] == results  # the status line is gone, and nothing of it is left
    shown = [part for part in re.split(r"[\r\n]", text) if STATUS.match(part)]
    assert shown
    assert all(len(part.removesuffix("\x1b[K")) < columns for part in shown)


def test_a_dumb_terminal_gets_no_control_sequences(tmp_path: Path) -> None:
    text = written_to_a_terminal(tmp_path, "{kind: console}", 80, TERM="dumb")
    assert "\x1b" not in text
    assert len([line for line in text.splitlines() if RESULT.fullmatch(line)]) > 50


@pytest.mark.parametrize(
    "arguments",
    [
        ["--log", "json"],
        ["--log=json", "--frames", "x", "camera.yaml"],
        ["camera.yaml", "--unknown", "--log", "json"],
        ["--log", "json", "check", "missing.yaml"],
        ["check", "missing.yaml", "--log", "json"],
        ["bench", "--log", "json", "camera.yaml", "--seconds", "x"],
    ],
)
def test_wrong_arguments_are_json_lines_where_the_log_is(
    tmp_path: Path, arguments: list[str]
) -> None:
    done = ended(tmp_path, *arguments)
    assert done.returncode == 2
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["level"] for line in told] == ["error"]


STRAY = """
import sys, threading

class Odd:
    def find_spec(self, name, path=None, target=None):
        if name == "pipeline.service.service":
            thread = threading.Thread(target=lambda: 1 / 0, name="odd")
            thread.start()
            thread.join()
            Fragile()

class Fragile:
    def __del__(self):
        raise ValueError("broken")

sys.meta_path.insert(0, Odd())
from pipeline.__main__ import main
sys.exit(main())
"""


def test_errors_that_nobody_awaits_are_lines_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "camera.yaml").write_text(CONFIG.replace("SINK", "").replace("150", "2"))
    done = subprocess.run(
        [sys.executable, "-c", STRAY, "camera.yaml", "--log", "json", "--quiet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    thread, destructor = map(json.loads, done.stderr.splitlines())
    assert done.returncode == 0
    assert thread["message"] == "unexpected ZeroDivisionError in thread odd: division by zero"
    assert destructor["message"].startswith("unexpected ValueError in ")
    assert all(line["traceback"].startswith("Traceback ") for line in (thread, destructor))


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "camera.yaml", "--set", "source.frames=3", "--quiet"],
        ["--set", "source.frames=3", "--quiet", "check", "camera.yaml"],
        ["--set=source.frames=3", "check", "--quiet", "camera.yaml"],
    ],
)
def test_options_stand_on_either_side_of_a_command(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "camera.yaml").write_text(CONFIG.replace("SINK", ""))
    done = ended(tmp_path, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_video_of_raw_results_is_remarked(tmp_path: Path) -> None:
    config = CONFIG.replace("SINK", "{kind: video, path: a.mp4}") + "postprocess: {kind: raw}\n"
    (tmp_path / "camera.yaml").write_text(config)
    said = "sinks.0: nothing is drawn, as postprocess.kind raw makes no detections"
    for arguments in (["check", "camera.yaml"], ["camera.yaml", "--frames", "2"]):
        done = ended(tmp_path, *arguments)
        assert done.returncode == 0, done.stderr
        assert said in done.stdout + done.stderr
