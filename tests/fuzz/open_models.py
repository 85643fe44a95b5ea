"""A process that opens the models that it is told and runs each once; see ``play_files.py``.

A line is the engine's name, its library or ``-``, and the path, with blanks between.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pipeline import Executor, PipelineError
from tests.fuzz.play_files import answer_lines


async def _run(engine: str, library: str, path: str) -> None:
    settings: dict[str, Any] = {} if library == "-" else {"library": library}
    async with (
        Executor.open(path, engine=engine, memory_limit=200 << 20, **settings) as executor,
        executor.ring(1) as ring,
        ring.slot() as slot,
    ):
        await executor.run(slot)


def _open(line: str) -> int:
    asyncio.run(_run(*line.split(" ", 2)))
    return 1


if __name__ == "__main__":
    answer_lines(_open, PipelineError)
