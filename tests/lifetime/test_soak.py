"""Four cameras for a minute, or ``SOAK_SECONDS=3600 pytest tests/lifetime/test_soak.py``."""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

SECONDS = float(os.environ.get("SOAK_SECONDS", "60"))


def test_four_cameras_one_of_them_lost_all_the_time_use_no_more_in_the_end() -> None:
    faulthandler.cancel_dump_traceback_later()  # this one has a limit of its own
    ended = subprocess.run(
        [sys.executable, "-m", "tests.lifetime.soak", str(SECONDS)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS + 120,
        check=True,
    )
    told = json.loads(ended.stdout)
    samples = told["samples"]
    # Caches fill in the first part; the second and the last quarter are compared.
    quarter = len(samples) // 4
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    for what, more in (("resident", 5_000_000), ("descriptors", 0), ("threads", 0)):
        before, after = (max(sample[what] for sample in part) for part in (early, late))
        assert after - before <= more, f"{what}: {before} before, {after} in the end"
    results = [sample["results"] for sample in samples]
    assert all(later > earlier for earlier, later in pairwise(results))
    assert told["cameras"]["restless"]["reconnects"] > SECONDS / 2
    assert all(camera["results"] > SECONDS for camera in told["cameras"].values())
    assert told["frames"] == told["results"] + sum(told["dropped"].values())
    assert told["allocations"][0] == told["allocations"][1]
    assert told["slots"] == {"free": 4}
    assert told["abandoned"] == []
    assert told["threads_left"] == ["MainThread"]
