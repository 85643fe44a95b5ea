"""Where the stand-in is, for tests that drive it by other people's clients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from standin import Standin

__all__: list[str] = []

VARIABLE = "RKNN_STANDIN"


@pytest.fixture(scope="session")
def standin() -> Standin:
    """The built stand-in that RKNN_STANDIN names."""
    path = os.environ.get(VARIABLE)
    if not path:
        pytest.skip(f"{VARIABLE} names no built librknnrt.so; see tests/foreign/README.md")
    return Standin(Path(path).resolve())


@pytest.fixture
def strict(standin: Standin) -> Iterator[Standin]:
    """The same, where the test must break no rule and leave nothing behind."""
    before = standin.stats()
    yield standin
    after = standin.stats()
    assert after["misuse"] == before["misuse"], standin.last_misuse()
    for name in ("live_mems", "live_contexts", "live_outputs", "live_weights", "internal_bytes"):
        assert after[name] == before[name], name
