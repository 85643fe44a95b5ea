"""This library through its public face: a Pipeline with raw outputs, on a uvloop event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pipeline import Pipeline
from pipeline.pipeline import new_event_loop

if TYPE_CHECKING:
    from tests.benchmarks.peers.common import Job

__all__ = ["config", "run"]


def config(job: Job) -> dict[str, Any]:
    """What a user would write in YAML; the images are stretched, as the peers do."""
    return {
        "source": {"uri": job.clip},
        "model": {
            "path": job.model(),
            "contexts": int(job.option("contexts", "2")),
            "options": {
                "inference_precision": "f32",
                "hint": job.option("hint", "latency"),
            },
        },
        "preprocess": {"resize": "stretch"},
        "postprocess": {"kind": "raw"},
    }


def run(job: Job) -> None:
    """Every result's outputs are taken in the event loop."""

    async def main() -> None:
        async with Pipeline(config(job)) as pipeline:
            async for result in pipeline:
                job.finish(dict(result.outputs))

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
