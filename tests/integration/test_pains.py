"""What users of such systems complain about most cannot happen here: a test for each complaint.

Each names the public threads that it comes from, by project and number. A camera is a real MJPEG
server, an NPU the simulated one or a vendor library's stand-in, which counts what it is asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import socket
import statistics
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from rknn_model import Model
from standin import Standin

from pipeline import (
    BindingError,
    ClosedError,
    EngineError,
    Executor,
    Pipeline,
    Result,
    RunError,
)
from pipeline.backends.simulated import expected_output
from pipeline.opening import Opening
from pipeline.report import table
from pipeline.ring import Ring
from pipeline.sources import SourceSettings
from pipeline.sources.synthetic import synthetic_frame

if TYPE_CHECKING:
    from tests import nnrt_standin, rknn_standin
    from tests.conftest import Until
    from tests.servers import MjpegServer, read_number
    from tests.standins import NoCompilerError
    from tests.usage import resources
else:
    import nnrt_standin
    import rknn_standin
    from servers import MjpegServer, read_number
    from standins import NoCompilerError
    from usage import resources

pytestmark = pytest.mark.usefixtures("no_leak")

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
    """Made-up pictures; with ``fps`` they come by the clock."""
    asked = "".join(f"&{name}={value}" for name, value in query.items())
    return {"uri": f"synthetic:?width=64&height=48{asked}"}


def camera(server: MjpegServer, **settings: Any) -> dict[str, Any]:
    """A network camera that is opened again soon when it is lost."""
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


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# Frames.


async def test_results_stay_fresh_though_frames_come_faster_than_the_engine_runs() -> None:
    """ultralytics 4211, 11784: frames pile up, results are minutes late."""
    ages = []
    settings = config(20, source=synthetic(fps=300, frames=450))
    async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
        async for result in pipe:
            ages.append(result.stamps.latency_ns / 1e9)
    assert len(ages) < 120
    # Piled up, the last ones would be older than a second.
    assert statistics.median(ages[-10:]) < 3 * statistics.median(ages[5:15]) < 1.0
    assert set(pipe.stats().dropped) == {"latest"}


async def test_every_lost_frame_is_counted_with_its_camera_and_cause() -> None:
    """ultralytics 14720: frames are lost over time, and nobody knows why."""
    fast = synthetic(fps=300, frames=90)
    cameras = {
        "often": {**fast, "max_fps": 30},
        "newest": {**fast, "overflow": "latest"},
        "oldest": {**fast, "overflow": "drop_newest"},
        "old": {**fast, "max_age_ms": 0.001},
    }
    model = {"options": {"fail_runs": [5, 9]}}
    taken = 0
    async with asyncio.timeout(HANG), Pipeline(config(10, model=model, cameras=cameras)) as pipe:
        async for _ in pipe:
            taken += 1
    stats = pipe.stats()
    for name, one in stats.cameras.items():
        assert one.frames == 90 == one.results + sum(one.dropped.values()), name
    causes = {"often": "rate", "newest": "latest", "oldest": "drop_newest", "old": "stale"}
    assert all(stats.cameras[name].dropped[cause] > 0 for name, cause in causes.items())
    assert stats.dropped["failed"] == 2
    assert stats.results == taken + stats.undelivered.get("program", 0)


async def test_a_frozen_picture_is_noticed_and_its_camera_opened_again(until: Until) -> None:
    """ultralytics 10127: frozen frames go unnoticed."""
    with MjpegServer(fps=50, still=True) as server:
        async with running(config(source=camera(server, stale_after_s=0.3))) as pipe:
            await until(lambda: times(pipe, "camera", "stale") >= 2)
            assert times(pipe, "camera", "lost") >= 1
            server.tell(still=False)
            await until(lambda: times(pipe, "camera", "live") > times(pipe, "camera", "lost"))
            before = results(pipe, "camera")
            await until(lambda: results(pipe, "camera") > before + 25)
            assert pipe.health().ok
    assert pipe.stats().dropped["frozen"] >= 2
    assert all_accounted_for(pipe)


async def test_a_camera_lost_for_long_is_reopened_without_growing(until: Until) -> None:
    """ultralytics 6351, jetson-utils 148: it is never reopened, or each attempt leaks."""
    with MjpegServer() as server:
        async with running(config(source=camera(server))) as pipe:
            await until(lambda: results(pipe, "camera") > 0)
            server.kill()
            await until(lambda: times(pipe, "camera", "lost") >= 10)
            before, memory = resources(), resident()
            await until(lambda: times(pipe, "camera", "lost") >= 60)
            await until(lambda: not resources() - before)
            assert resident() - memory < 4_000_000
            server.restart()
            seen = results(pipe, "camera")
            await until(lambda: results(pipe, "camera") > seen + 5)
            assert pipe.stats().cameras["camera"].state == "live"


async def test_a_read_that_blocks_for_ever_is_left_behind_and_replaced(until: Until) -> None:
    """opencv 22677, 24393, opencv-python 788: read() blocks for 30 s or for ever."""
    with MjpegServer() as server:
        stuck = camera(server, open_timeout_s=0.3, read_timeout_s=0.3)
        cameras = {"stuck": stuck, "other": synthetic(fps=100)}
        async with running(config(cameras=cameras)) as pipe:
            await until(lambda: results(pipe, "stuck") > 0)
            server.freeze()  # connections stay, and nothing comes
            await until(lambda: times(pipe, "stuck", "lost") >= 2)
            seen = results(pipe, "other")
            await until(lambda: results(pipe, "other") > seen + 20)
            server.thaw()
            seen = results(pipe, "stuck")
            await until(lambda: results(pipe, "stuck") > seen + 5)


async def test_a_stream_loses_frames_only_where_that_was_chosen() -> None:
    """roboflow/inference 1160: a stream that is taken for live loses frames."""
    lost = {}
    for policy in ("block", "latest"):
        numbers: list[int | None] = []
        with MjpegServer(fps=100) as server:
            settings = config(15, source=camera(server, overflow=policy))
            async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
                async for result in pipe:
                    numbers.append(read_number(result.image))
                    if len(numbers) == 30:
                        break
        found = [number for number in numbers if number is not None]
        assert len(found) == 30
        lost[policy] = found[-1] - found[0] - 29
        assert pipe.stats().dropped.get("latest", 0) == 0 or policy == "latest"
    assert lost["block"] == 0 < lost["latest"]


# The supervisor.


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
    assert set(pipe.abandoned) <= {"capture-camera"}
    assert pipe.stats().frames == 0


@pytest.mark.parametrize(
    "where",
    [
        "sources.synthetic.SyntheticReader.retrieve",
        "preprocess.Preprocessor.process",
        "postprocess.raw.Raw.process",
        "sinks.console.ConsoleSink.write",
    ],
)
async def test_an_error_in_any_thread_ends_all_of_it_and_is_told(
    where: str, monkeypatch: pytest.MonkeyPatch
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
            with pytest.raises(ZeroDivisionError, match=where):
                await pipe.wait()
    assert calls == 1
    assert (pipe.abandoned, set(pipe.stats().slots)) == ([], {"free"})
    assert pipe.stats().error == where


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
                assert pipe.stats().cameras["extra"].state == "ended"
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
    np.testing.assert_array_equal(kept, copy)  # a picture of the old size stays what it was
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
    assert pipe.abandoned == ["sink-jsonl-0"]
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


# The simulated NPU: slots and requests.


def opened(**options: Any) -> Opening[Executor]:
    contexts = options.pop("contexts", 1)
    return Executor.open(
        engine="simulated", contexts=contexts, input_shape=[1, 8, 8, 3], options=options
    )


async def test_a_request_keeps_its_memory_and_a_crowd_of_them_takes_no_more() -> None:
    """openvino 11727, 36554: the queue grows; an input is freed while it is used."""
    async with opened(latency_ms=1) as executor, executor.ring(2) as ring:

        async def ask(value: int) -> None:
            async with ring.slot() as slot:
                image = executor.allocate("input", 0)
                image[...] = value
                run = slot.submit({0: image})
                del image  # what is allocated meanwhile must not be this
                other = executor.allocate("input", 0)
                other[...] = 255
                await run
                assert (slot.outputs[0] == value).all()

        await asyncio.gather(*map(ask, range(10)))
        before = executor.counters()
        await asyncio.gather(*map(ask, range(200)))
        assert executor.counters().allocations <= before.allocations + 2
        assert executor.counters().live_blocks <= before.live_blocks + 2


async def test_a_slot_comes_back_however_its_run_did_not_start() -> None:
    """model_server 4335: a slot is lost when the start throws."""
    async with opened(fail_runs=[1, 2, 3, 4]) as executor, executor.ring(2) as ring:
        for _ in range(4):
            async with ring.slot() as slot:
                with pytest.raises(BindingError):
                    await executor.run(slot, {0: np.zeros(5, np.uint8)})
            with pytest.raises(RunError, match="as scripted"):
                async with ring.slot() as slot:
                    await executor.run(slot)
            with pytest.raises(ZeroDivisionError):
                async with ring.slot():
                    raise ZeroDivisionError
        assert [slot.state for slot in ring.slots()] == ["free", "free"]


async def test_the_native_module_neither_grows_nor_miscounts_references() -> None:
    """dlstreamer 172, 77: out of memory after hours; a reference count that is wrong."""
    failing = list(range(5, 10_000, 5))

    async with opened(fail_runs=failing) as executor, executor.ring(2) as ring:

        async def work(runs: int) -> None:
            for _ in range(runs):
                async with ring.slot() as slot:
                    slot.inputs[0][...] = 1
                    with contextlib.suppress(RunError):
                        await executor.run(slot)
                        view = slot.outputs[0][:, 2:]
                        assert view.sum() == 8
                        del view

        def counts() -> list[int]:
            gc.collect()
            spec, dtype = executor.inputs[0], executor.outputs[0].dtype
            return [sys.getrefcount(each) for each in (RunError, spec, dtype, executor, ring)]

        await work(500)
        before, memory, blocks = counts(), resident(), sys.getallocatedblocks()
        await work(3000)
        assert all(abs(a - b) < 50 for a, b in zip(counts(), before, strict=True))
        assert sys.getallocatedblocks() - blocks < 1000
        assert resident() - memory < 2_000_000


async def test_a_result_that_is_kept_is_not_recycled() -> None:
    """model_api 651: callbacks see buffers that are used again."""
    kept: list[tuple[Array, Array]] = []
    async with asyncio.timeout(HANG), Pipeline(config(source=synthetic())) as pipe:
        earlier: Result | None = None
        async for result in pipe:
            if earlier is not None:
                with pytest.raises(ClosedError, match="given back"):
                    _ = earlier.image
            earlier = result
            if len(kept) < 4:
                for view in (result.image, result.outputs[0].array):
                    assert not view.flags.writeable
                    kept.append((view, view.copy()))
            if result.sequence == 100:
                break
    for view, copy in kept:
        np.testing.assert_array_equal(view, copy)


@pytest.fixture(scope="session")
def _pool() -> None:
    """OpenCV starts its threads once, with the first large picture."""
    cv2.resize(np.zeros((48, 64, 3), np.uint8), (1600, 1600))


@pytest.mark.usefixtures("_pool")
async def test_the_stage_that_takes_longest_is_shown() -> None:
    """go-rknnlite 47: zero copy gave no gain, as preprocessing took the time."""
    for stage, latency_ms, side in (("infer", 20, 32), ("preprocess", 0, 1600)):
        model = {"input_shape": [1, side, side, 3]}
        settings = config(latency_ms, model=model, source=synthetic(frames=20))
        async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
            await pipe.wait()
        (line,) = (line for line in table(pipe.stats()).splitlines() if "slowest" in line)
        assert line.split()[0] == stage


async def test_results_are_those_of_their_own_frames_and_in_order() -> None:
    """immich 31142, rknn-multi-threaded 9: pooled results are mixed up or lag by N frames."""
    model = {
        "contexts": 4,
        "options": {"latency_ms": 0.2, "jitter_ms": 2, "distribution": "exponential"},
    }
    cameras = {name: synthetic(frames=100) for name in ("left", "right")}
    cameras["right"]["uri"] = cameras["right"]["uri"].replace("64", "128")
    seen: dict[str, list[int]] = {"left": [], "right": []}
    settings = config(model=model, cameras=cameras, ring={"depth": 8})
    async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
        async for result in pipe:
            seen[result.camera].append(result.sequence)
            if result.camera == "left":  # of the input's own size, so nothing is interpolated
                image = synthetic_frame(result.sequence, 64, 48)
                wanted = expected_output(image, (1, 10), np.float32)
                np.testing.assert_array_equal(result.outputs[0].array, wanted)
    assert seen == {name: list(range(100)) for name in cameras}


# Vendor libraries, by their stand-ins.


class Rockchip:
    """The stand-in runtime for Rockchip NPUs and a model for it."""

    def __init__(self, folder: Path) -> None:
        self.standin = Standin(rknn_standin.library())
        self.folder = folder
        self.model = self.use("tiny")

    def use(self, preset: str) -> Model:
        self.model = rknn_standin.write_model(self.folder / "model.rknn", preset)
        return self.model

    def settings(self, **model: Any) -> dict[str, Any]:
        return {
            "path": str(self.folder / "model.rknn"),
            "engine": "rknn",
            "library": self.standin.path,
            **model,
        }

    def open(self, **settings: Any) -> Opening[Executor]:
        made = self.settings(**settings)
        return Executor.open(made.pop("path"), **made)

    def count(self, name: str) -> int:
        return self.standin.stats()[name]

    def picture(self, seed: int) -> Array:
        return np.random.default_rng(seed).integers(0, 256, (32, 32, 3), np.uint8)

    def expected(self, picture: Array) -> Array:
        return self.model.real(self.model.run([np.moveaxis(picture, -1, 0)[None]], 0))[0]

    async def check_run(self, executor: Executor, ring: Ring, seed: int) -> None:
        async with ring.slot() as slot:
            slot.inputs[0][0] = picture = self.picture(seed)
            await executor.run(slot)
            np.testing.assert_array_equal(slot.outputs[0], self.expected(picture))


@pytest.fixture
def npu(tmp_path: Path) -> Iterator[Rockchip]:
    """The stand-in, whose rules must be kept and with which nothing may be left."""
    try:
        found = Rockchip(tmp_path)
    except NoCompilerError as error:
        pytest.skip(str(error))
    before = found.standin.stats()
    yield found
    assert found.count("misuse") == before["misuse"], found.standin.last_misuse()


Switch = pytest.MonkeyPatch


async def test_npu_memory_gives_its_descriptors_back(npu: Rockchip) -> None:
    """rknn-toolkit2 532: making and destroying memory leaks a descriptor each time."""

    async def life() -> None:
        async with npu.open(contexts=2) as executor, executor.ring(4) as ring:
            await npu.check_run(executor, ring, 1)
            assert len(os.listdir("/proc/self/fd")) > files  # they are real

    files = len(os.listdir("/proc/self/fd"))
    await life()
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await life()
    assert len(os.listdir("/proc/self/fd")) == files
    assert npu.count("live_mems") == 0


async def test_no_frame_makes_binds_or_destroys_npu_memory(npu: Rockchip) -> None:
    """rknn_model_zoo 68: creating, binding and destroying it for each frame crashes."""
    names = ("allocations", "binds", "live_mems", "live_contexts")
    settings = {"source": synthetic(), "model": npu.settings(contexts="auto"), "ring": {"depth": 6}}
    async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
        async for result in pipe:
            if result.sequence == 20:
                before = [npu.count(name) for name in names]
            if result.sequence == 300:
                assert [npu.count(name) for name in names] == before
                break
    assert pipe.stats().driver_allocations[0] == pipe.stats().driver_allocations[1] == 12


async def test_an_output_that_the_engine_does_not_write_is_found_at_the_start(
    tmp_path: Path, monkeypatch: Switch
) -> None:
    """rknpu 48: outputs that were allocated before stay zero."""
    try:
        library = nnrt_standin.library("v2")
    except NoCompilerError as error:
        pytest.skip(str(error))
    image = nnrt_standin.StandInTensor("image", "uint8", (1, 24, 32, 3), "NHWC")
    outputs = [nnrt_standin.StandInTensor(name, "float32", (1, 4)) for name in ("boxes", "scores")]
    path = nnrt_standin.write_model(tmp_path / "model.om", [image], outputs)
    monkeypatch.setenv("STANDIN_NNRT_SILENT_OUTPUT", "1")
    opening = Executor.open(path, engine="nnrt", device="NPU", library=str(library))
    async with opening as executor:
        with pytest.raises(EngineError, match="output 1 'scores': the engine did not write"):
            await executor.ring(2)


async def test_an_engine_that_keeps_old_addresses_is_seen_through(
    npu: Rockchip, monkeypatch: Switch
) -> None:
    """nnstreamer 536, 3577: old addresses are kept; outputs are overwritten while they are read."""
    monkeypatch.setenv("STANDIN_RKNN_REBIND", "ignore")
    auto = npu.open(contexts=1, options={"binding": "auto"})
    async with auto as executor, executor.ring(3) as ring:
        assert executor.notes()["binding"].startswith("context_per_slot")
        slot = await ring.acquire()
        slot.inputs[0][0] = picture = npu.picture(0)
        await executor.run(slot)
        view = slot.outputs[0]
        slot.release()
        for seed in range(1, 20):  # on the other slots
            await npu.check_run(executor, ring, seed)
        np.testing.assert_array_equal(view, npu.expected(picture))
        del view
    insisting = npu.open(contexts=1, options={"binding": "rebind"})
    with pytest.raises(EngineError, match=r"options\.binding: this runtime ignores memory"):
        async with insisting as executor, executor.ring(3):
            pass


async def test_outputs_are_given_back_and_runs_make_no_garbage(npu: Rockchip) -> None:
    """rknn-toolkit2 207, 42: memory grows until the board dies."""
    general = npu.open(contexts=1, options={"mode": "general"})
    async with general as executor, executor.ring(2) as ring:
        picture = npu.picture(0)

        async def work(runs: int) -> None:
            for _ in range(runs):
                async with ring.slot() as slot:
                    slot.inputs[0][0] = picture
                    await executor.run(slot)

        await work(100)
        names = ("live_outputs", "live_mems", "allocations")
        before, blocks = [npu.count(name) for name in names], sys.getallocatedblocks()
        await work(1000)
        assert [npu.count(name) for name in names] == before
        assert sys.getallocatedblocks() - blocks < 500


async def test_a_run_blocks_a_thread_of_its_context_and_nothing_else(
    npu: Rockchip, monkeypatch: Switch, until: Until
) -> None:
    """rknn-toolkit2 577: a run that does not block returns, and waiting for it fails."""
    monkeypatch.setenv("STANDIN_RKNN_HANG_RUN", "3")  # two are to try out the slots
    async with npu.open(contexts=2) as executor, executor.ring(2) as ring:
        slot = await ring.acquire()
        hanging = slot.submit()
        await until(lambda: npu.standin.hanging() == 1)
        for seed in range(10):  # this loop and the other context go on
            await npu.check_run(executor, ring, seed)
        npu.standin.release_hangs()
        with pytest.raises(EngineError, match=r"\(-2\)"):
            await hanging
        slot.release()
        await npu.check_run(executor, ring, 11)


async def test_memory_is_its_contexts_own_and_is_left_alone_while_that_runs(
    npu: Rockchip, monkeypatch: Switch
) -> None:
    """rknn-toolkit2 533: memory used from another context's thread is a kernel panic."""
    monkeypatch.setenv("STANDIN_RKNN_ONE_THREAD", "1")
    monkeypatch.setenv("STANDIN_RKNN_RUN_US", "2000")
    rebind = npu.open(contexts=3, options={"binding": "rebind"})
    async with rebind as executor, executor.ring(6) as ring:

        async def ask(seed: int) -> None:
            async with ring.slot() as slot:
                image = executor.allocate("input", 0, slot.context)
                image[0] = picture = npu.picture(seed)
                report = slot.submit({0: image})
                del image  # while its context may be running
                assert (await report).inputs == ("bound",)
                np.testing.assert_array_equal(slot.outputs[0], npu.expected(picture))

        await asyncio.gather(*map(ask, range(40)))
        executor.trim()
    # That the stand-in saw no call from another thread is what the fixture checks.


async def test_each_core_has_a_context_of_its_own(npu: Rockchip, monkeypatch: Switch) -> None:
    """rknn-toolkit2 129: one context over three cores is hardly faster than one core."""
    monkeypatch.setenv("STANDIN_RKNN_RUN_US", "30000")
    async with npu.open(contexts="auto") as executor, executor.ring(3) as ring:
        assert (executor.contexts, executor.notes()["cores"]) == (3, "0, 1, 2")
        slots = [await ring.acquire() for _ in range(3)]
        assert {slot.context for slot in slots} == {0, 1, 2}
        reports = await asyncio.gather(*(executor.run(slot) for slot in slots))
        latest = max(report.started_ns for report in reports)
        assert all(report.finished_ns > latest for report in reports)  # all at the same time
        for slot in slots:
            slot.release()


async def test_a_board_that_refuses_work_is_told_with_its_driver_and_left_alone(
    npu: Rockchip, monkeypatch: Switch
) -> None:
    """rknn-toolkit2 384, 294: the submit fails, and the board locks up."""
    monkeypatch.setenv("STANDIN_RKNN_FAIL_RUN", "3+")  # two are to try out the slots
    model = npu.settings(options={"cores": [1]}, max_failures=2, reopen_attempts=1)
    settings = {"source": synthetic(frames=1000), "model": model, "ring": {"depth": 2}}
    runs = npu.count("runs")
    async with asyncio.timeout(HANG), Pipeline(settings) as pipe:
        with pytest.raises(EngineError, match=r"core 1 .*driver 0\.9\.8"):
            await pipe.wait()
    assert npu.count("runs") - runs < 20  # it is not asked again and again
    assert pipe.stats().dropped["failed"] >= 3
    assert all_accounted_for(pipe)


async def test_buffers_are_sized_and_laid_out_as_the_npu_says(npu: Rockchip) -> None:
    """rknn_model_zoo 448, 156, rknpu2 9: wrong attributes, a forced layout, types left out."""
    model = npu.use("mixed")
    opening = npu.open(options={"dequantize": False})
    async with opening as executor, executor.ring(1) as ring, ring.slot() as slot:
        slot.inputs[0][0] = picture = npu.picture(1)
        slot.inputs[1][...] = vector = np.arange(10).reshape(slot.inputs[1].shape)
        await executor.run(slot)
        wanted = model.run([np.moveaxis(picture, -1, 0)[None], vector.astype(np.int8)])
        for given, spec, raw in zip(slot.outputs, executor.outputs, wanted, strict=True):
            assert (given.dtype, given.shape) == (spec.dtype, tuple(spec.shape))
            np.testing.assert_array_equal(given, raw, err_msg=spec.name)
        del given
