"""Configurations spoilt at random: refused in a few lines, at once, by the check as by the run."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli.explain import describe
from pipeline.config.loading import load
from pipeline.errors import PipelineError
from tests.fuzz.mutate import count_of, mutated

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
ODD: list[Any] = [
    None, True, -1, 0, 10**30, 2**63, 0.1, 1e300, float("nan"), float("inf"), "", "x", "a\nb",
    "${", "${NOT_SET}", "$${X}", "\u202e", "a" * 10_000, "synthetic:", "rtsp://[::1",
    "http://a:b@c:d/", "package://", "file://[", "/dev/null", "..", "1", "on", [], [[]], [None],
    {}, {"": 1}, {"x": {}},
]  # fmt: skip
COUNT = count_of("configurations", 400)


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Each container below ``data`` with each of its keys."""
    if isinstance(data, dict | list):
        for key in list(data) if isinstance(data, dict) else range(len(data)):
            yield data, key
            yield from places(data[key])


def restructured(data: Any, chance: random.Random) -> str:
    """The same configuration with one to four values replaced, moved, left out or added."""
    data = copy.deepcopy(data)
    for _ in range(chance.randint(1, 4)):
        found = list(places(data))
        if not found:
            break
        holder, key = chance.choice(found)
        fault = chance.randrange(4)
        if fault == 0:
            holder[key] = copy.deepcopy(chance.choice(ODD))
        elif fault == 1:
            other, there = chance.choice(found)
            holder[key] = copy.deepcopy(other[there])
        elif fault == 2:
            del holder[key]
        elif isinstance(holder, dict):
            holder[chance.choice(["x", "<<", "x-a", "null", "uri", "kind", "options"])] = 1
    return yaml.safe_dump(data, allow_unicode=True)


def outcome(path: Path) -> tuple[int, str]:
    """Exit code and plan, or what is said; any other exception is a fault."""
    try:
        return 0, describe(load(path))
    except PipelineError as error:
        return error.exit_code, str(error)


@pytest.mark.parametrize("number", range(COUNT))
def test_a_spoilt_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setenv("MODEL", str(tmp_path / "model"))
    monkeypatch.setenv("RKNN_MODEL", str(tmp_path / "model"))
    (tmp_path / "model").touch()
    shipped = CONFIGS[number % len(CONFIGS)].read_bytes()
    chance = random.Random(number)
    spoilt = mutated(shipped, number)
    if number // len(CONFIGS) % 2:
        spoilt = restructured(yaml.safe_load(shipped), chance).encode("utf-8", "surrogatepass")
    path = tmp_path / "camera.yaml"
    path.write_bytes(spoilt)
    began = time.process_time()
    code, text = outcome(path)
    assert time.process_time() - began < 2
    lines = text.splitlines()
    if code:
        assert 1 <= len(lines) <= 21
        assert all(line.startswith(str(path)) and len(line) < 1000 for line in lines), lines
    assert code in (0, 2) or "no such file" in text or "not installed" in text
