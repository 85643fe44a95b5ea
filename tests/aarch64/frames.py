"""Frames through engine `rknn` on the stand-in, for an aarch64 Python under qemu-user.

    python frames.py LIBRARY

Needs the package, numpy and pydantic, and the stand-in's Python files on the path. It ends with an
error where an output is not numpy's or the stand-in complains.
"""

from __future__ import annotations

import asyncio
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import make_model
import numpy as np
from standin import Standin

import pipeline

__all__ = ["main"]

FRAMES = 60
DEPTH = 6
MODES: dict[str, dict[str, Any]] = {
    "context_per_slot": {"binding": "context_per_slot"},
    "rebind": {"binding": "rebind"},
    "general": {"mode": "general"},
}


async def run(path: Path, library: str, options: dict[str, Any]) -> None:
    """Frames on every slot, three contexts; AssertionError where a value is wrong."""
    model = make_model.PRESETS["tiny"](None)
    model.save(path)
    rng = np.random.default_rng(0)
    opening = pipeline.Executor.open(
        path, engine="rknn", library=library, contexts="auto", options=options
    )
    async with opening as executor, executor.ring(DEPTH) as ring:
        assert executor.contexts == 3
        allocations = executor.counters().allocations
        for _ in range(FRAMES):
            image = rng.integers(0, 256, executor.inputs[0].shape, np.uint8)
            async with ring.slot() as slot:
                slot.inputs[0][...] = image
                await executor.run(slot)
                wanted = model.real(model.run([np.moveaxis(image, -1, 1)]))
                np.testing.assert_array_equal(slot.outputs[0], wanted[0])
        assert executor.counters().allocations == allocations


def main(library: str) -> None:
    """Each mode in turn, and what the stand-in says of it."""
    standin = Standin(library)
    with tempfile.TemporaryDirectory() as folder:
        for mode, options in MODES.items():
            asyncio.run(run(Path(folder) / "tiny.rknn", library, options))
            sys.stdout.write(f"{platform.machine()}: {mode}: {FRAMES} frames as numpy's\n")
    stats = standin.stats()
    assert stats["misuse"] == 0, standin.last_misuse()
    assert stats["live_mems"] == stats["live_contexts"] == 0, stats


if __name__ == "__main__":
    main(sys.argv[1])
