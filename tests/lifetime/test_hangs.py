"""An engine that hangs costs its own model only, and no longer than the settings say."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline import DeviceError, Executor
from tests import mslite_standin
from tests.mslite_standin import StandInTensor
from tests.standins import NoCompilerError

TENSORS = [StandInTensor("image", "float32", (1, 4))]


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """A model of the stand-in that copies inputs, so that its first run is watched."""
    try:
        library = mslite_standin.library("MS")
    except NoCompilerError as error:
        pytest.skip(str(error))
    model = mslite_standin.write_model(tmp_path / "model.ms", TENSORS, TENSORS)
    return {"model": model, "engine": "mindspore_lite", "library": str(library), "image": None}


async def test_a_first_run_that_hangs_blocks_no_other_model(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = tmp_path / "stuck"
    stuck.touch()
    monkeypatch.setenv("STANDIN_MSLITE_HANG_RUN", str(stuck))
    async with Executor.open(**settings, run_timeout_s=0.3) as hung:
        began = time.monotonic()
        with pytest.raises(DeviceError, match="does not answer"):
            await hung.ring(1)
        assert time.monotonic() - began < 10
        monkeypatch.delenv("STANDIN_MSLITE_HANG_RUN")
        async with Executor.open(**settings) as other, other.ring(1) as ring, ring.slot() as slot:
            slot.inputs[0][...] = 1
            await other.run(slot)
            assert slot.outputs[0].tolist() == [[2, 2, 2, 2]]
            assert other.zero_copy()["input 0 'image'"]
        stuck.unlink()


async def test_an_opening_that_hangs_ends(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = tmp_path / "stuck"
    stuck.touch()
    monkeypatch.setenv("STANDIN_MSLITE_HANG_BUILD", str(stuck))
    began = time.monotonic()
    with pytest.raises(DeviceError, match=r"did not open the model within 0\.2 s"):
        await Executor.open(**settings, open_timeout_s=0.2)
    assert time.monotonic() - began < 10
    stuck.unlink()


OPENING = """
import asyncio, sys
from pipeline import Executor

library, model, kind = sys.argv[1:]

async def main():
    opening = asyncio.ensure_future(Executor.open(
        model, engine="mindspore_lite", library=library, image=None).__aenter__())
    await asyncio.wait({opening}, timeout=0.2)
    assert not opening.done()
    if kind == "exit":
        sys.exit(3)
    opening.cancel()
    await asyncio.wait({opening})

asyncio.run(main())
"""


@pytest.mark.parametrize(("kind", "code"), [("exit", 3), ("return", 0)])
def test_a_program_ends_while_a_model_hangs_in_its_opening(
    settings: dict[str, Any], tmp_path: Path, kind: str, code: int
) -> None:
    stuck = tmp_path / "stuck"
    stuck.touch()
    arguments = [settings["library"], str(settings["model"]), kind]
    done = subprocess.run(
        [sys.executable, "-c", OPENING, *arguments],
        env={"STANDIN_MSLITE_HANG_BUILD": str(stuck)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, "")
