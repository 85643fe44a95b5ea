"""What the tests of users' complaints, ``test_pains_*.py``, share: pipelines and what they tell.

Each of those tests names the public threads that its complaint comes from, by project and number.
A camera is a real MJPEG server, an NPU the simulated one or a vendor library's stand-in, which
counts what it is asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from pipeline import Pipeline

if TYPE_CHECKING:
    from tests.servers import MjpegServer

__all__ = [
    "HANG",
    "Array",
    "all_accounted_for",
    "camera",
    "config",
    "results",
    "running",
    "synthetic",
    "times",
]

HANG = 60.0  # seconds after which something is called a hang
Array = npt.NDArray[Any]


def config(
    latency_ms: float = 1, *, model: dict[str, Any] | None = None, **sections: Any
) -> dict[str, Any]:
    """Any cameras before a simulated NPU of this speed; ``sections`` are those of the YAML."""
    options = {"latency_ms": latency_ms, **(model or {}).pop("options", {})}
    simulated = {"engine": "simulated", "input_shape": [1, 48, 64, 3], "options": options}
    return {"model": simulated | (model or {}), **sections}


def synthetic(**query: float) -> dict[str, Any]:
    """Synthetic frames; with ``fps`` they come by the clock."""
    asked = "".join(f"&{name}={value}" for name, value in query.items())
    return {"uri": f"synthetic:?width=64&height=48{asked}"}


def camera(server: MjpegServer, **settings: Any) -> dict[str, Any]:
    """A network camera that is reopened soon when it is lost."""
    return {
        "uri": server.url,
        "read_timeout_s": 2.0,
        "stale_after_s": 0.0,
        "reconnect": {"initial_s": 0.01, "max_s": 0.02},
        **settings,
    }


@contextlib.asynccontextmanager
async def running(settings: dict[str, Any]) -> AsyncIterator[Pipeline]:
    """A pipeline at work for its sinks; cancelled at the end."""
    async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
        working = asyncio.ensure_future(pipe.wait())
        try:
            yield pipe
        finally:
            pipe.cancel()
            await working


def times(pipe: Pipeline, source: str, state: str) -> int:
    """How often a camera, sink or the engine came into a state."""
    return pipe.stats().events.get(source, {}).get(state, 0)


def results(pipe: Pipeline, name: str) -> int:
    found = pipe.stats().cameras.get(name)
    return 0 if found is None else found.results


def all_accounted_for(pipe: Pipeline) -> bool:
    stats = pipe.stats()
    return stats.frames == stats.results + sum(stats.dropped.values())
