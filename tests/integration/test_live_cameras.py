"""Cameras that fail in every way, on real servers: reported, reopened, and no harm to others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from pipeline import Pipeline
from tests.conftest import Until
from tests.servers import MjpegServer, RtspServer, Server, TroubleProxy, gstreamer_missing

pytestmark = pytest.mark.usefixtures("no_leak")

STOP_SECONDS = 5.0  # no state of a camera makes stopping last longer
KINDS: list[Any] = [
    pytest.param(MjpegServer, {}, id="mjpeg"),
    pytest.param(
        RtspServer,
        {"transport": "tcp"},
        id="rtsp",
        marks=pytest.mark.skipif(
            gstreamer_missing() is not None, reason=gstreamer_missing() or "installed"
        ),
    ),
]
every_kind = pytest.mark.parametrize(("kind", "behaviour"), KINDS)


class Rig:
    """A pipeline of two cameras: ``door``, which a test spoils, and ``steady``."""

    def __init__(self, url: str, **door: Any) -> None:
        door = {
            "uri": url,
            "read_timeout_s": 1.0,
            "open_timeout_s": 2.0,
            "reconnect": {"initial_s": 0.05, "max_s": 0.2},
            **door,
        }
        steady = {"uri": "synthetic:", "width": 64, "height": 48, "fps": 50}
        self.pipe = Pipeline(
            {
                "cameras": {"door": door, "steady": steady},
                "model": {
                    "engine": "simulated",
                    "contexts": 2,
                    "input_shape": [1, 48, 64, 3],
                    "options": {"latency_ms": 1},
                },
                "drain_s": 2,
            }
        )
        self.sizes: set[tuple[int, ...]] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        return self.pipe.stats().cameras["door"].state

    def results(self, camera: str = "door") -> int:
        return self.pipe.stats().cameras[camera].results

    def seen(self, state: str) -> int:
        """How often the camera came into this state."""
        return self.pipe.stats().events.get("door", {}).get(state, 0)

    async def _take(self) -> None:
        async for result in self.pipe:
            if result.camera == "door":
                self.sizes.add(result.image.shape)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Running inside; stopped after it, in time, with nothing abandoned or lost."""
        await self.pipe.open()
        self._task = asyncio.create_task(self._take())
        try:
            yield
        finally:
            async with asyncio.timeout(STOP_SECONDS):
                await self.pipe.drain()
                await self._task
        stats = self.pipe.stats()
        assert self.pipe.abandoned == []
        assert stats.frames == stats.results + sum(stats.dropped.values())
        assert stats.slots == {"free": stats.depth}
        assert stats.driver_allocations[0] == stats.driver_allocations[1]

    async def goes_on(self, until: Until, count: int = 5) -> None:
        """The camera is live and delivers more results."""
        await until(lambda: self.state == "live")
        before = self.results()
        await until(lambda: self.results() >= before + count)

    async def others_go_on(self, until: Until) -> None:
        """The other camera does not notice."""
        before = self.results("steady")
        await until(lambda: self.results("steady") >= before + 20)
        assert self.pipe.stats().cameras["steady"].reconnects == 0


@every_kind
async def test_a_server_that_is_killed_and_restarted(
    kind: Callable[..., Server], behaviour: dict[str, Any], until: Until
) -> None:
    with kind(**behaviour) as server:
        rig = Rig(server.url)
        async with rig.running():
            await rig.goes_on(until)
            server.kill()
            await until(lambda: rig.seen("lost") >= 2)  # it is tried again and again
            await rig.others_go_on(until)
            await asyncio.to_thread(server.restart)
            await rig.goes_on(until)
        assert rig.pipe.stats().cameras["door"].reconnects == 1


@every_kind
async def test_a_server_that_freezes(
    kind: Callable[..., Server], behaviour: dict[str, Any], until: Until
) -> None:
    with kind(**behaviour) as server:
        rig = Rig(server.url)
        async with rig.running():
            await rig.goes_on(until)
            server.freeze()
            await until(lambda: rig.seen("lost") >= 1)
            await rig.others_go_on(until)
            server.thaw()
            await rig.goes_on(until)


@every_kind
async def test_a_server_that_starts_ten_seconds_late(
    kind: Callable[..., Server], behaviour: dict[str, Any], until: Until
) -> None:
    server = kind(**behaviour, late=10.0)
    try:
        server.start(wait=False)
        rig = Rig(server.url)
        async with rig.running():
            await rig.others_go_on(until)
            assert rig.results() == 0
            assert not rig.pipe.health().ok
            assert any("door" in problem for problem in rig.pipe.health().problems)
            await asyncio.to_thread(server.wait_ready)
            await rig.goes_on(until)
            assert rig.pipe.health().ok
    finally:
        server.close()


@every_kind
async def test_a_stream_that_slows_to_a_trickle(
    kind: Callable[..., Server], behaviour: dict[str, Any], until: Until
) -> None:
    with kind(**behaviour) as server, TroubleProxy(server) as proxy:
        rig = Rig(proxy.url)
        async with rig.running():
            await rig.goes_on(until)
            proxy.tell(bytes_per_second=200.0)
            await until(lambda: rig.seen("lost") >= 1)
            await rig.others_go_on(until)
            proxy.tell(bytes_per_second=None)
            await rig.goes_on(until)


@every_kind
async def test_a_resolution_that_changes(
    kind: Callable[..., Server], behaviour: dict[str, Any], until: Until
) -> None:
    with kind(**behaviour, resize_after=40) as server:
        rig = Rig(server.url)
        async with rig.running():
            await until(lambda: (480, 640, 3) in rig.sizes)
            await rig.goes_on(until)
        assert rig.sizes == {(240, 320, 3), (480, 640, 3)}
        door = rig.pipe.stats().cameras["door"]
        # One stream goes on; a server that starts its numbers anew changes the size again.
        assert door.reconnects <= 1


@pytest.mark.parametrize(
    ("kind", "behaviour"),
    [
        pytest.param(MjpegServer, {"garbage": 3000}, id="mjpeg"),
        pytest.param(RtspServer, {"damage": 0.0002}, id="rtsp", marks=KINDS[1].marks),
    ],
)
async def test_garbage_in_the_stream(
    kind: Callable[..., Server], behaviour: dict[str, Any], until: Until
) -> None:
    with kind(**behaviour) as server:
        rig = Rig(server.url, read_timeout_s=5.0)
        async with rig.running():
            await rig.goes_on(until)
            await rig.others_go_on(until)


@every_kind
async def test_a_image_that_never_changes_is_told_and_opened_again(
    kind: Callable[..., Server], behaviour: dict[str, Any], until: Until
) -> None:
    with kind(**behaviour, still=True) as server:
        rig = Rig(server.url, stale_after_s=0.5)
        async with rig.running():
            await until(lambda: rig.seen("stale") >= 2)
            server.tell(still=False)
            await rig.goes_on(until, 20)


@pytest.mark.parametrize("how", ["drain", "cancel"])
@pytest.mark.parametrize(
    "trouble", ["never there", "killed", "frozen", "trickle", "garbage", "silent at first"]
)
@every_kind
async def test_stopping_in_every_state(
    kind: Callable[..., Server],
    behaviour: dict[str, Any],
    trouble: str,
    how: str,
    until: Until,
) -> None:
    with kind(**behaviour) as server, TroubleProxy(server) as proxy:
        if trouble == "never there":
            server.kill()
        if trouble == "silent at first":
            proxy.tell(stalled=True)
        # Long deadlines: stopping must not wait for them.
        rig = Rig(proxy.url, read_timeout_s=60.0, open_timeout_s=60.0)
        spoil: dict[str, Callable[[], Any]] = {
            "killed": server.kill,
            "frozen": server.freeze,
            "trickle": lambda: proxy.tell(bytes_per_second=200.0),
            "garbage": lambda: proxy.tell(garbage=5000),
        }
        await rig.pipe.open()
        running = asyncio.create_task(rig.pipe.wait())
        if trouble in spoil:
            await rig.goes_on(until)
            spoil[trouble]()
        await rig.others_go_on(until)
        stop: Callable[[], Awaitable[None]] = rig.pipe.drain if how == "drain" else rig.pipe.close
        async with asyncio.timeout(STOP_SECONDS):
            await stop()
            await running
        assert rig.pipe.abandoned == []
        assert rig.pipe.stats().slots == {"free": rig.pipe.stats().depth}
