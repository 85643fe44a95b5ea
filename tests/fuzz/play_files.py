"""A process that plays the files that it is told, one a line, and says how each ended.

A line of the answer is JSON: seconds, growth in MB, frames, error; or a traceback.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.clock import MonotonicClock
from pipeline.errors import FormatChangedError, PipelineError, SourceError
from pipeline.memory.frame import check_size
from pipeline.sources import SourceSettings, make_reader

_MOST_FRAMES = 200


def _peak_mb() -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) >> 10


def _play(path: str) -> int:
    reader = make_reader(SourceSettings(uri=path, pixels="auto"), MonotonicClock())
    found = reader.open()
    frames = 0
    try:
        check_size(found.width, found.height, 64_000_000)
        buffer = np.zeros(found.shape, np.uint8)
        while frames < _MOST_FRAMES and reader.grab() is not None:
            try:
                reader.retrieve(buffer)
            except FormatChangedError as change:
                check_size(change.format.width, change.format.height, 64_000_000)
                buffer = np.zeros(change.format.shape, np.uint8)
                reader.retrieve(buffer)
            frames += 1
    finally:
        reader.close()
    return frames


def answer_lines(play: Callable[[str], int], expected: type[PipelineError]) -> None:
    """Answer until there are no more lines. Another error than ``expected`` is a fault."""
    logging.disable()  # what is left on standard error comes from elsewhere
    for line in sys.stdin:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, began = _peak_mb(), time.monotonic()
        answer: dict[str, Any] = {"pid": os.getpid()}
        try:
            answer["frames"] = play(line.rstrip("\n"))
        except expected as error:
            answer["error"] = str(error)
        except Exception:
            answer["traceback"] = traceback.format_exc()
        answer["seconds"] = time.monotonic() - began
        answer["growth"] = _peak_mb() - before
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    answer_lines(_play, SourceError)
