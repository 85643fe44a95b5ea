"""A pipeline in steady state, counted for some frames.

    python steady.py memory|hand-overs CONFIG FIRST FRAMES DUMP

From result ``FIRST`` on, for ``FRAMES`` results. ``memory``: what the preloaded allocator of
``native/tests/alloc`` counted is written to ``DUMP``. ``hand-overs``: what went from thread to
thread and through the event loop is told. What is told is a line of JSON.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from pipeline import Pipeline
from pipeline.memory.ring import Ring
from pipeline.pipeline import new_event_loop
from pipeline.worker import Worker

calls: Counter[str] = Counter()


def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return function(*args, **kwargs)

    return call


def count_hand_overs(loop: Any) -> None:
    """Each call that a thread is given or that wakes the loop, and each step on the loop."""
    for name in ("submit", "send"):
        setattr(Worker, name, counted("to_thread", getattr(Worker, name)))
    setattr(Ring, "_on_ready", counted("to_loop", Ring._on_ready))  # noqa: B010
    loop.call_soon_threadsafe = counted("to_loop", loop.call_soon_threadsafe)
    loop.call_soon = counted("on_loop", loop.call_soon)
    loop.create_task = counted("tasks", loop.create_task)
    for name in ("call_later", "call_at"):
        setattr(loop, name, counted("timers", getattr(loop, name)))


async def main(config: dict[str, Any], first: int, frames: int, dump: str) -> None:
    counter = ctypes.CDLL(None)
    made: Counter[str] = Counter()
    begun: Counter[str] = Counter()
    number = 0
    async with Pipeline(config) as pipeline:
        async for result in pipeline:
            number += 1
            for output in result.outputs:
                assert output.array.ndim > 0
            output = None  # type: ignore[assignment]  # a view would keep its slot
            if number == first:
                gc.collect()
                begun = Counter(calls)
                counter.count_start()
            if number == first + frames:
                counter.count_dump(dump.encode())
                made = calls - begun
                pipeline.stop()
    sys.stdout.write(json.dumps({"dropped": pipeline.stats().dropped, "calls": made}))


if __name__ == "__main__":
    what, config, first, frames, dump = sys.argv[1:]
    event_loop = new_event_loop()
    if what == "memory":
        ctypes.CDLL(None).count_python()
    else:
        count_hand_overs(event_loop)
    with asyncio.Runner(loop_factory=lambda: event_loop) as runner:
        runner.run(main(json.loads(config), int(first), int(frames), dump))
