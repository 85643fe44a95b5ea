"""A pipeline as a service: health over HTTP, word to systemd."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from types import TracebackType

from pipeline.pipeline import Pipeline
from pipeline.service.health import HealthServer, listen
from pipeline.service.systemd import notify, watchdog_seconds

__all__ = ["Service"]

_log = logging.getLogger(__name__)


class Service:
    """``async with Service(pipeline)`` around an open pipeline, while it runs."""

    def __init__(
        self, pipeline: Pipeline, *, host: str = "127.0.0.1", port: int | None = None
    ) -> None:
        self._pipeline = pipeline
        self._host = host
        self._port = port
        self._server: HealthServer | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Service:
        pipeline = self._pipeline
        if self._port is not None:
            listener = await listen(self._host, self._port)
            self._server = HealthServer(
                pipeline.stats, pipeline.health, pipeline.recorder, listener
            )
            url = self._server.url
            _log.info("health: %s/healthz and %s/metrics", url, url)
        if (period := watchdog_seconds()) is not None:
            self._tasks.append(asyncio.create_task(_feed_watchdog(period), name="watchdog"))
        notify("READY=1")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        notify("STOPPING=1")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._server.close)


async def _feed_watchdog(period: float) -> None:
    # On the event loop: when that is stuck, systemd must notice.
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            notify("WATCHDOG=1")
            await asyncio.sleep(period)
