"""What users complain about with supervision cannot happen: a part that hangs the rest."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import Abandoned, Pipeline, PipelineError, SinkError, SourceError
from pipeline.sources import SourceSettings
from tests.conftest import Until
from tests.integration.complaints import (
    HANG,
    all_accounted_for,
    camera,
    config,
    results,
    running,
    synthetic,
    times,
)
from tests.servers import MjpegServer, read_number

pytestmark = pytest.mark.usefixtures("no_leak")


@pytest.mark.parametrize("how", ["drain", "cancel"])
async def test_it_stops_in_time_though_the_camera_never_came(how: str, until: Until) -> None:
    """roboflow/inference 685: it cannot be stopped when the camera never came."""
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts, and never answers
        silent = {"uri": f"http://127.0.0.1:{server.getsockname()[1]}/video.mjpg"}
        async with asyncio.timeout(HANG), Pipeline(config(source=silent)) as pipe:
            working = asyncio.ensure_future(pipe.wait())
            await until(lambda: times(pipe, "camera", "connecting") > 0)
            began = asyncio.get_running_loop().time()
            if how == "drain":
                await pipe.drain(0.5)
            else:
                pipe.cancel()
            await working
            assert asyncio.get_running_loop().time() - began < 4
    assert {part.name for part in pipe.abandoned} <= {"capture-camera"}
    assert pipe.stats().frames == 0


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("sources.synthetic.SyntheticReader.retrieve", SourceError),
        ("preprocess.preprocessor.Preprocessor.process", SourceError),
        ("postprocess.raw.Raw.process", PipelineError),
        ("sinks.console.ConsoleSink.write", SinkError),
    ],
)
async def test_an_error_in_any_thread_ends_all_of_it_and_is_told(
    where: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """roboflow/inference 1095: an error in a thread hangs everything."""
    calls = 0

    def fail(*_: Any) -> None:
        nonlocal calls
        calls += 1
        raise ZeroDivisionError(where)

    monkeypatch.setattr(f"pipeline.{where}", fail)
    settings = config(source=synthetic(), sinks=[{"kind": "console"}])
    async with asyncio.timeout(HANG):
        async with Pipeline(settings) as pipe:
            with pytest.raises(kind, match=where):
                await pipe.wait()
    assert calls >= 1  # frames that were on their way come to the same end
    assert (pipe.abandoned, set(pipe.stats().slots)) == ([], {"free"})
    assert where in str(pipe.stats().error)


async def test_cameras_come_and_go_while_others_do_not_notice(until: Until) -> None:
    """roboflow/inference 362: cameras cannot be added while it runs."""
    steady = {**synthetic(fps=100), "overflow": "block"}
    with MjpegServer() as server:
        async with running(config(cameras={"steady": steady})) as pipe:
            for _ in range(3):
                seen = results(pipe, "extra"), results(pipe, "steady")
                await pipe.add_camera("extra", SourceSettings(**camera(server)))
                await until(lambda: results(pipe, "extra") > seen[0] + 5)  # noqa: B023
                await pipe.remove_camera("extra")
                assert "extra" not in pipe.stats().cameras
                await until(lambda: results(pipe, "steady") > seen[1] + 5)  # noqa: B023
            assert pipe.stats().cameras["steady"].dropped == {}
            assert pipe.abandoned == []
    assert all_accounted_for(pipe)


async def test_a_change_of_resolution_is_that_cameras_own_affair() -> None:
    """frigate 22716, 23625, 261: stale ring segments; a full ring is a bus error."""
    sizes: list[tuple[int, ...]] = []
    steady: list[int] = []
    with MjpegServer(fps=50, resize_after=15) as server:
        cameras = {
            "moving": camera(server),
            "steady": {**synthetic(fps=50), "overflow": "block"},
        }
        async with asyncio.timeout(HANG), Pipeline(config(cameras=cameras)) as pipe:
            async for result in pipe:
                if result.camera == "steady":
                    steady.append(result.sequence)
                    assert result.image.shape == (48, 64, 3)
                    continue
                assert read_number(result.image) is not None  # whole, and of one size
                if not sizes:
                    kept, copy = result.image, result.image.copy()
                sizes.append(result.image.shape[:2])
                if sizes.count((480, 640)) == 10:
                    break
    stats = pipe.stats()
    assert sizes == sorted(sizes)
    assert set(sizes) == {(240, 320), (480, 640)}
    np.testing.assert_array_equal(kept, copy)  # a frame of the old size stays what it was
    assert steady == sorted(set(steady))
    assert set(stats.cameras["steady"].dropped) <= {"cancelled"}
    assert stats.driver_allocations[0] == stats.driver_allocations[1]
    assert all_accounted_for(pipe)


@pytest.fixture
def full_pipe(tmp_path: Path) -> Iterator[Path]:
    """A named pipe that is open and never read, and holds little."""
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "pipe", "r+b", buffering=0) as reader:
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        yield tmp_path / "pipe"


async def test_a_sink_that_nobody_reads_stalls_no_other_and_is_reported(
    until: Until, full_pipe: Path, tmp_path: Path
) -> None:
    """depthai-core 1972: one queue that is not read hangs everything."""
    paths = [str(full_pipe), str(tmp_path / "file")]
    sinks = [{"kind": "jsonl", "path": path} for path in paths]
    async with running(config(source=synthetic(fps=200), sinks=sinks)) as pipe:
        await until(lambda: pipe.stats().undelivered.get("jsonl-0", 0) > 50)
        stats = pipe.stats()
    assert pipe.abandoned == [Abandoned(SinkError, "sink-jsonl-0")]
    written = (tmp_path / "file").read_text().splitlines()
    # The stuck one keeps its share of the slots; a burst may now and then find none left.
    assert len(written) > stats.results / 2
    assert stats.undelivered.get("jsonl-1", 0) < stats.undelivered["jsonl-0"] / 2


async def test_a_slow_callback_does_not_slow_the_engine(
    until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mediapipe 5466: a slow user callback hangs the detection."""
    go, threads = threading.Event(), set()

    def write(*_: Any) -> None:
        threads.add(threading.current_thread().name)
        go.wait()

    monkeypatch.setattr("pipeline.sinks.console.ConsoleSink.write", write)
    settings = config(source=synthetic(fps=200), sinks=[{"kind": "console"}])
    try:
        async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
            async for result in pipe:  # slow as well
                seen = pipe.stats().results
                await until(lambda: pipe.stats().results > seen + 50)  # noqa: B023
                assert result.outputs[0].array.shape == (1, 10)
                go.set()
                break
    finally:
        go.set()
    assert threads == {"sink-console-0"}  # a thread of its own, and not the engine's
