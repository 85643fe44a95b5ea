"""A process that opens files one after another and answers how each ended."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

__all__ = ["Player", "fault_of"]

ROOT = Path(__file__).parents[2]
SECONDS = 20.0
GROWTH_MB = 500


class Player:
    """The process that plays files; a new one where the last one died or hung."""

    def __init__(self, script: str = "play_files") -> None:
        self._script = f"tests.fuzz.{script}"
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._script],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def play(self, path: Path | str) -> dict[str, Any]:
        """How it ended; ``code`` where the process died, ``hung`` where it did not answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{path}\n")
        stdin.flush()
        ready, _, _ = select.select([stdout], [], [], 3 * SECONDS)
        line = stdout.readline() if ready else ""
        if line:
            return cast("dict[str, Any]", json.loads(line))
        self._process.kill()
        code = self._process.wait()
        self.close()
        self._start()
        return {"hung": True} if not ready else {"code": code}

    def close(self) -> str:
        """End it; what it printed beside its answers."""
        _, printed = self._process.communicate()
        return printed


def fault_of(answer: dict[str, Any]) -> str:
    """What must not be in an answer; empty when it is fine."""
    if "seconds" not in answer:
        return str(answer)
    if "traceback" in answer:
        return str(answer["traceback"])
    if "\n" in answer.get("error", ""):
        return f"more than a line: {answer['error']}"
    if answer["seconds"] > SECONDS or answer["growth"] > GROWTH_MB:
        return f"{answer['seconds']:.1f} s, {answer['growth']} MB"
    return ""
