"""What all tests share: both event loops, waiting for conditions, and a watchdog for hangs."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from tests.usage import resources

if TYPE_CHECKING:
    from collections import Counter

Until = Callable[[Callable[[], bool]], Awaitable[None]]

HANG_SECONDS = 300.0  # no single test takes as long, not even under a sanitizer


_stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_stderr] = os.dup(2)  # while it is not captured
    config.addinivalue_line("markers", "both_loops: run on asyncio's own loop and on uvloop")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "asyncio": asyncio.new_event_loop
    }
    if item.get_closest_marker("both_loops") is not None:
        try:
            import uvloop
        except ImportError:  # it exists for CPython only
            return factories
        factories["uvloop"] = uvloop.new_event_loop
    return factories


@pytest.fixture(autouse=True)
def _watchdog(pytestconfig: pytest.Config) -> Iterator[None]:
    """A test that hangs ends the run with a traceback of every thread."""
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True, file=pytestconfig.stash[_stderr])
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def until() -> Until:
    """``await until(condition)``: look at it again and again; TimeoutError when it hangs."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - whatever it is about has no event
                await asyncio.sleep(0.002)

    return wait


@pytest.fixture(scope="session")
def _warm() -> None:
    """What libraries start once and keep without limit is there before anything is counted."""
    import cv2  # noqa: F401 - starts a thread that stays

    from pipeline import Pipeline

    Pipeline(
        {
            "source": {"uri": "synthetic:", "width": 64, "height": 48, "frames": 3},
            "model": {"engine": "simulated", "input_shape": [1, 96, 96, 3]},
        }
    ).run()


@pytest.fixture
def no_leak(_warm: None) -> Iterator[None]:
    """The process has no more threads and descriptors after the test than before."""
    before = resources()
    yield
    deadline = time.monotonic() + 30
    while (leaked := resources() - before) and time.monotonic() < deadline:
        gc.collect()  # what only a cycle of a traceback and its frames keeps is no leak
        time.sleep(0.01)  # a thread that was abandoned may be about to end
    assert not leaked


@pytest.fixture
def held_by_process() -> Callable[[], Counter[str]]:
    """``held_by_process()`` counts the threads and descriptors of now."""
    return resources


@pytest.fixture
def small_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of any size are kept as planes, so that small ones can test it."""
    monkeypatch.setattr("pipeline.sources.pyav_frames.LEAST_PIXELS", 0)
