"""The stand-in on aarch64, driven by the package rknn-toolkit-lite2 under qemu-user.

RKNN_LITE_ROOT names the folder that `prepare.sh` fills: an aarch64 Debian with Python, the toolkit
and the stand-in, and the files by which the toolkit knows an RK3588.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

__all__: list[str] = []

HERE = Path(__file__).parent
STANDIN = HERE.parents[1] / "native" / "tests" / "vendor" / "rknn"
CLIENT = HERE / "rknn_lite_client.py"


def emulated(root: Path, *arguments: str) -> str:
    """What the aarch64 Python prints."""
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if qemu is None:
        pytest.skip("needs qemu-user-static")
    path = os.pathsep.join([str(root / "opt" / "toolkit"), str(STANDIN)])
    done = subprocess.run(
        [qemu, "-L", str(root), str(root / "usr" / "bin" / "python3.11"), *arguments],
        env={"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def root() -> Path:
    """The prepared aarch64 system."""
    folder = os.environ.get("RKNN_LITE_ROOT")
    if not folder:
        pytest.skip("RKNN_LITE_ROOT names no prepared system; see tests/foreign/README.md")
    return Path(folder).resolve()


@pytest.mark.parametrize("preset", ["tiny", "centerface", "half", "dynamic"])
def test_the_toolkit_runs_frames(preset: str, root: Path, tmp_path: Path) -> None:
    printed = emulated(root, str(CLIENT), preset, str(tmp_path / "model.rknn"))
    report = json.loads(printed.splitlines()[-1])
    assert (report["load"], report["init"]) == (0, 0)
    assert report["equal"]
    assert all(outputs and all(outputs) for outputs in report["equal"])
    stats = report["stats"]
    assert stats["misuse"] == 0, report["last_misuse"]
    assert stats["runs"] == len(report["equal"])
    for name in ("live_mems", "live_contexts", "live_outputs", "live_weights"):
        assert stats[name] == 0, name
