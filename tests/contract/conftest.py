"""What the conformance suite runs on: each of ``engines.ENGINES``, opened, and a ring of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pipeline import Executor, Ring
from tests.contract.conformance import CONTEXTS, DEPTH
from tests.contract.engines import ENGINES, EngineCase


@pytest.fixture(params=ENGINES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> EngineCase:
    found: EngineCase = request.param
    if (why := found.missing()) is not None:
        pytest.skip(why)
    return found


@pytest.fixture
async def executor(case: EngineCase) -> AsyncIterator[Executor]:
    async with case.open(contexts=CONTEXTS) as opened:
        yield opened


@pytest.fixture
async def ring(executor: Executor) -> AsyncIterator[Ring]:
    async with executor.ring(DEPTH) as opened:
        yield opened
