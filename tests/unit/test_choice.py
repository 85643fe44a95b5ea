"""What auto becomes, as a pure function of figures and runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.cli.explain import describe
from pipeline.config.loading import parse
from pipeline.engines.autotune_choice import (
    Aim,
    Choice,
    Span,
    Tried,
    choose,
    counts_to_try,
    figures,
)
from pipeline.machine.wiring import build, ring_depth

MS = 1_000_000


def tried(contexts: int, fps: float, ms: float, threads: int | None = None) -> Tried:
    return Tried(contexts, threads, fps, ms, 10)


NPU = [tried(1, 230, 4.3), tried(2, 440, 4.4), tried(3, 441, 6.6)]
CPU = [
    tried(1, 500, 2.0, threads=2),
    tried(1, 300, 3.3, threads=1),
    tried(2, 590, 3.4, threads=2),
]


@pytest.mark.parametrize(
    ("figures", "aim", "contexts", "threads"),
    [
        (NPU, "throughput", 2, None),
        (NPU, "latency", 1, None),
        (CPU, "throughput", 2, 2),
        (CPU, "latency", 1, 2),
        ([tried(1, 100, 2.0, 2), tried(1, 98, 2.05, 1)], "latency", 1, 2),
        ([tried(1, 100, 2.0, 2), tried(1, 98, 2.05, 1)], "throughput", 1, 1),
        ([tried(1, 96, 10), tried(2, 100, 20)], "throughput", 1, None),
        ([tried(1, 94, 10), tried(2, 100, 20)], "throughput", 2, None),
        ([tried(2, 100, 9), tried(1, 100, 10)], "latency", 2, None),
        ([tried(1, 5, 200)], "throughput", 1, None),
    ],
)
def test_the_least_that_is_as_good_as_the_best(
    figures: list[Tried], aim: Aim, contexts: int, threads: int | None
) -> None:
    for order in (figures, figures[::-1]):
        found = choose(order, aim)
        assert (found.contexts, found.threads) == (contexts, threads)


def back_to_back(count: int, ms: int, start: int = 0) -> list[Span]:
    return [((start + i * ms) * MS, (start + (i + 1) * ms) * MS) for i in range(count)]


@pytest.mark.parametrize(
    ("spans", "fps", "ms"),
    [
        ([back_to_back(5, 10)], 100, 10),
        ([back_to_back(5, 10), back_to_back(5, 10)], 200, 10),
        ([back_to_back(5, 10), back_to_back(5, 10, start=3)], 200, 10),
        # Two contexts that share one core: each run waits for the other's.
        ([[(0, 10 * MS), *back_to_back(4, 20, start=10)], back_to_back(5, 20)], 100, 20),
        ([back_to_back(1, 10)], 100, 10),
        # Never busy at the same time.
        ([back_to_back(3, 10), back_to_back(3, 10, start=100)], 4 / 0.12, 10),
    ],
    ids=["one", "two", "apart", "shared-core", "single-run", "in-turn"],
)
def test_the_rate_is_that_of_the_time_when_all_are_busy(
    spans: list[list[Span]], fps: float, ms: float
) -> None:
    assert figures(spans) == pytest.approx((fps, ms))
    assert figures(spans, batch=4) == pytest.approx((4 * fps, ms))


def test_numbers_of_contexts_grow_in_steps() -> None:
    assert counts_to_try(1) == [1]
    assert counts_to_try(3) == [1, 2, 3]
    assert counts_to_try(10) == [1, 2, 3, 4, 6, 8, 10]


def test_the_choice_in_words_and_as_data() -> None:
    choice = Choice("throughput", 2, None, 6, 0.61, tuple(NPU))
    assert str(choice) == (
        "contexts 2, ring depth 6: probed for throughput in 0.61 s "
        "(1: 230/s, 4.3 ms; 2: 440/s, 4.4 ms; 3: 441/s, 6.6 ms)"
    )
    assert "threads 2, ring" in str(Choice("latency", 1, 2, 3, 0.4, tuple(CPU)))
    assert "nothing to choose" in str(Choice("latency", 1, None, 3, 0.0, ()))
    told = json.loads(json.dumps(choice.data()))
    assert (told["contexts"], told["ring_depth"], len(told["tried"])) == (2, 6, 3)
    assert told["tried"][1] == {"contexts": 2, "threads": None, "fps": 440, "ms": 4.4, "runs": 10}


def config(raw: bool = False, ring: dict[str, Any] | None = None, **model: Any) -> Any:
    whole: dict[str, Any] = {
        "source": {"uri": "synthetic:"},
        "model": {"engine": "simulated", **model},
        "postprocess": {"kind": "raw" if raw else "centerface"},
        "sinks": [{"kind": "console"}],
    }
    return parse(whole | ({} if ring is None else {"ring": ring}))


@pytest.mark.parametrize(
    ("settings", "depth"),
    [
        ({}, 4),
        ({"contexts": 3}, 4),
        ({"contexts": "auto"}, 4),
        ({"contexts": "auto", "ring": {"depth": 7}}, 7),
        ({"contexts": 2, "ring": {"depth": "auto"}}, 6),
        ({"contexts": 3, "ring": {"depth": "auto"}}, 9),
        ({"contexts": 1, "aim": "latency", "ring": {"depth": "auto"}}, 3),
        ({"contexts": 2, "raw": True, "ring": {"depth": "auto"}}, 10),
        ({"contexts": 64, "ring": {"depth": "auto"}}, 192),
    ],
)
def test_the_depth_of_the_ring_follows_the_contexts(settings: dict[str, Any], depth: int) -> None:
    made = config(**settings)
    assert ring_depth(made) == build(made).depth == depth


def test_a_plan_tells_what_will_be_measured_and_measures_nothing() -> None:
    plan = describe(config(contexts="auto"))
    assert "auto: measured at the start, for throughput" in plan
    assert "auto: 4 slots, or more by the number of contexts" in plan
    plan = describe(config(contexts="auto", aim="latency"))
    assert "auto: 1, for latency" in plan
    assert "  3 slots" in plan
    fixed = describe(config(contexts=2, ring={"depth": "auto"}))
    assert "6 slots" in fixed
    assert "auto" not in fixed
