"""Health and metrics over HTTP, on loopback by default."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pipeline.errors import ConfigError
from pipeline.flow.stats import Recorder, Stats
from pipeline.machine.runner import Health
from pipeline.worker import call_in_thread

__all__ = ["HealthServer", "listen"]

_log = logging.getLogger(__name__)

# Upper bounds of the histograms, seconds.
_AGES = (0.005, 0.01, 0.02, 0.033, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_TIMES = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_LOOP_SECONDS = 2.0
_MOST_CONNECTIONS = 64
_REQUEST_SECONDS = 5.0  # for a whole request, and as long again for its answer
_MOST_BYTES = 16384
_FRESH_SECONDS = 0.25
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
}


class _Answer(NamedTuple):
    status: int
    kind: str
    body: str

    def encode(self, *, head: bool) -> bytes:
        """The whole response; without its body for HEAD."""
        body = self.body.encode()
        lines = [
            f"HTTP/1.1 {self.status} {_REASONS.get(self.status, 'Service Unavailable')}",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        if self.status == 405:
            lines.append("Allow: GET, HEAD")
        return "\r\n".join([*lines, "", ""]).encode() + (b"" if head else body)


class HealthServer:
    """``/healthz`` (200 or 503, with the reasons as JSON) and Prometheus' ``/metrics``.

    It serves from a thread and an event loop of its own: at most 64 connections, each for one
    request. Health is asked of the pipeline's loop, so that one that is stuck answers 503;
    metrics are made beside it, four times a second at most.
    """

    def __init__(
        self,
        stats: Callable[[], Stats],
        health: Callable[[], Health],
        recorder: Recorder,
        listener: socket.socket,
    ) -> None:
        self._stats = stats
        self._health = health
        self._recorder = recorder
        self._pipeline_loop = asyncio.get_running_loop()
        self._listener = listener
        self._connections = 0
        self._metrics = ""
        self._metrics_at = -_FRESH_SECONDS
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """Address that it is reached at."""
        host = self._listener.getsockname()[0]
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def close(self) -> None:
        """Stop listening and drop all connections."""
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        self._loop.set_exception_handler(_not_served)
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._listener, limit=_MOST_BYTES)
        await self._ending.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= _MOST_CONNECTIONS:
                await self._serve_one(reader, writer)
        except (OSError, EOFError, TimeoutError) as error:
            _log.debug("a request was not answered: %s", error or type(error).__name__)
        finally:
            self._connections -= 1
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_REQUEST_SECONDS):
            try:
                request = await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                request = b""
        method, _, rest = request.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        path, _, version = rest.partition(" ")
        if not request:
            answer = _Answer(431, "text/plain", f"at most {_MOST_BYTES} bytes\n")
        elif not version.startswith("HTTP/"):
            answer = _Answer(400, "text/plain", "needed an HTTP request\n")
        elif method not in ("GET", "HEAD"):
            answer = _Answer(405, "text/plain", "only GET and HEAD\n")
        else:
            answer = await self._answer(path.partition("?")[0])
        writer.write(answer.encode(head=method == "HEAD"))
        async with asyncio.timeout(_REQUEST_SECONDS):
            await writer.drain()
            writer.write_eof()
            # Whatever is left of the request is read, else closing would reset the connection.
            while await reader.read(_MOST_BYTES):
                pass

    async def _answer(self, path: str) -> _Answer:
        if path == "/metrics":
            return _Answer(200, _PROMETHEUS, self._fresh_metrics())
        if path != "/healthz":
            return _Answer(404, "text/plain", "see /healthz and /metrics\n")
        health = Health(False, ("the event loop does not answer",))
        with contextlib.suppress(RuntimeError, TimeoutError):  # it is closed, or stuck
            asked = asyncio.run_coroutine_threadsafe(_on_loop(self._health), self._pipeline_loop)
            health = await asyncio.wait_for(asyncio.wrap_future(asked), _LOOP_SECONDS)
        body = json.dumps({"ok": health.ok, "problems": list(health.problems)})
        return _Answer(200 if health.ok else 503, "application/json", body + "\n")

    def _fresh_metrics(self) -> str:
        if time.monotonic() - self._metrics_at >= _FRESH_SECONDS:
            from prometheus_client import CollectorRegistry, generate_latest

            registry = CollectorRegistry()
            registry.register(_Collector(self._stats(), self._recorder))
            self._metrics = generate_latest(registry).decode()
            self._metrics_at = time.monotonic()
        return self._metrics


async def listen(host: str, port: int) -> socket.socket:
    """A listening socket; the name is resolved on a thread. ConfigError when it cannot be had."""
    if not host:
        raise ConfigError("--health-host: needed an address, got nothing")
    try:
        # The first that can be listened on; a name may have several addresses.
        resolve = functools.partial(
            socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = (await call_in_thread("resolve", resolve))[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()  # the thread begins later
        except BaseException:
            listener.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"--health: cannot listen on {host}:{port}: {reason}") from None
    return listener


def _not_served(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log one line where asyncio would print a traceback, as when descriptors run out."""
    _log.warning("%s: %s", context["message"], context.get("exception"))


class _Collector:
    """Prometheus' view of one snapshot."""

    def __init__(self, stats: Stats, recorder: Recorder) -> None:
        self._stats = stats
        self._recorder = recorder

    def collect(self) -> Iterator[Any]:
        """The metric families."""
        yield from self._of_cameras()
        yield from self._of_the_rest()

    def _of_cameras(self) -> Iterator[Any]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        frames = CounterMetricFamily("pipeline_frames", "Frames captured", labels=["camera"])
        results = CounterMetricFamily("pipeline_results", "Results made", labels=["camera"])
        dropped = CounterMetricFamily(
            "pipeline_dropped", "Frames dropped", labels=["camera", "cause"]
        )
        damaged = CounterMetricFamily(
            "pipeline_damaged", "Frames that their decoder calls damaged", labels=["camera"]
        )
        lost = CounterMetricFamily(
            "pipeline_reconnects", "Times that a camera was reopened", labels=["camera"]
        )
        live = GaugeMetricFamily("pipeline_camera_live", "1 while frames arrive", labels=["camera"])
        age = HistogramMetricFamily(
            "pipeline_age_seconds", "Age of a frame when its result is ready", labels=["camera"]
        )
        stages = HistogramMetricFamily(
            "pipeline_stage_seconds", "Time of a stage", labels=["camera", "stage"]
        )
        recorders = self._recorder.cameras.copy()
        for name, camera in self._stats.cameras.items():
            frames.add_metric([name], camera.frames)
            results.add_metric([name], camera.results)
            damaged.add_metric([name], camera.damaged)
            lost.add_metric([name], camera.reconnects)
            live.add_metric([name], 1.0 if camera.state == "live" else 0.0)
            for cause, number in camera.dropped.items():
                dropped.add_metric([name, cause], number)
            if (recorder := recorders.get(name)) is None:
                continue  # it was removed meanwhile
            age.add_metric([name], *recorder.latency.cumulative(_AGES))
            for stage, histogram in recorder.stages.items():
                stages.add_metric([name, stage], *histogram.cumulative(_TIMES))
        yield from (frames, results, dropped, damaged, lost, live, age, stages)

    def _of_the_rest(self) -> Iterator[Any]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        stats = self._stats
        slots = GaugeMetricFamily("pipeline_slots", "Slots by state", labels=["state"])
        for state in ("free", "filling", "submitted", "done", "leased"):
            slots.add_metric([state], stats.slots.get(state, 0))
        undelivered = CounterMetricFamily(
            "pipeline_undelivered", "Results that a receiver missed", labels=["receiver"]
        )
        for receiver, number in stats.undelivered.items():
            undelivered.add_metric([receiver], number)
        events = CounterMetricFamily(
            "pipeline_events",
            "Times that a camera, the engine or a sink entered a state",
            labels=["source", "state"],
        )
        for source, states in stats.events.items():
            for state, number in states.items():
                events.add_metric([source, state], number)
        yield events
        lag = HistogramMetricFamily("pipeline_loop_lag_seconds", "Delay of the event loop")
        lag.add_metric([], *self._recorder.loop_lag.cumulative(_TIMES))
        yield lag
        yield slots
        yield undelivered
        yield GaugeMetricFamily(
            "pipeline_driver_memory_bytes", "Highest use of driver memory", value=stats.driver_bytes
        )
        yield CounterMetricFamily(
            "pipeline_driver_allocations", "Driver allocations", value=stats.driver_allocations[1]
        )
        yield CounterMetricFamily(
            "pipeline_engine_reopened", "Engine reopened", value=stats.engine_reopened
        )


async def _on_loop(health: Callable[[], Health]) -> Health:
    return health()
