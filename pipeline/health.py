"""Health and metrics over HTTP, on loopback unless told otherwise."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pipeline.errors import ConfigError
from pipeline.runner import Health
from pipeline.stats import Recorder, Stats

__all__ = ["HealthServer"]

# Upper bounds of the age histogram, seconds.
_AGES = (0.005, 0.01, 0.02, 0.033, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_LOOP_SECONDS = 2.0
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class HealthServer:
    """``/healthz`` (200 or 503, with the reasons as JSON) and Prometheus' ``/metrics``.

    The answers are made on the event loop, so that a loop that is stuck answers 503, too.
    """

    def __init__(
        self,
        stats: Callable[[], Stats],
        health: Callable[[], Health],
        recorder: Recorder,
        host: str = "127.0.0.1",
        port: int = 9100,
    ) -> None:
        self._stats = stats
        self._health = health
        self._recorder = recorder
        self._loop = asyncio.get_running_loop()
        handler = type("Handler", (_Handler,), {"owner": self})
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"--health: cannot listen on {host}:{port}: {error}") from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="health", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str) -> tuple[int, str, str]:
        """Status, content type and body; called on the server's threads."""
        make = {"/healthz": self._healthz, "/metrics": self._metrics}.get(path.split("?")[0])
        if make is None:
            return 404, "text/plain", "see /healthz and /metrics\n"
        future = asyncio.run_coroutine_threadsafe(_on_loop(make), self._loop)
        try:
            return future.result(_LOOP_SECONDS)
        except concurrent.futures.TimeoutError:
            future.cancel()
            body = json.dumps({"ok": False, "problems": ["the event loop does not answer"]})
            return 503, "application/json", body + "\n"

    def _healthz(self) -> tuple[int, str, str]:
        health = self._health()
        body = json.dumps({"ok": health.ok, "problems": list(health.problems)})
        return (200 if health.ok else 503), "application/json", body + "\n"

    def _metrics(self) -> tuple[int, str, str]:
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(_Collector(self._stats(), self._recorder))
        return 200, _PROMETHEUS, generate_latest(registry).decode()


class _Handler(BaseHTTPRequestHandler):
    owner: HealthServer

    def do_GET(self) -> None:
        status, kind, body = self.owner.answer(self.path)
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Requests are no news."""


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
            "pipeline_damaged", "Pictures that their decoder calls damaged", labels=["camera"]
        )
        lost = CounterMetricFamily(
            "pipeline_reconnects", "Times that it came back", labels=["camera"]
        )
        live = GaugeMetricFamily("pipeline_camera_live", "1 while frames come", labels=["camera"])
        age = HistogramMetricFamily(
            "pipeline_age_seconds", "Age of a frame when its result is ready", labels=["camera"]
        )
        for name, camera in self._stats.cameras.items():
            frames.add_metric([name], camera.frames)
            results.add_metric([name], camera.results)
            damaged.add_metric([name], camera.damaged)
            lost.add_metric([name], camera.reconnects)
            live.add_metric([name], 1.0 if camera.state == "live" else 0.0)
            for cause, number in camera.dropped.items():
                dropped.add_metric([name, cause], number)
            buckets, total = self._recorder.cameras[name].latency.cumulative(_AGES)
            age.add_metric([name], buckets, sum_value=total)
        yield from (frames, results, dropped, damaged, lost, live, age)

    def _of_the_rest(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        stats = self._stats
        stages = GaugeMetricFamily(
            "pipeline_stage_seconds", "Time of a stage", labels=["stage", "quantile"]
        )
        for name, times in stats.stage_ms.items():
            stages.add_metric([name, "0.5"], times.p50 / 1e3)
            stages.add_metric([name, "0.99"], times.p99 / 1e3)
        slots = GaugeMetricFamily("pipeline_slots", "Slots by state", labels=["state"])
        for state in ("free", "filling", "submitted", "done", "leased"):
            slots.add_metric([state], stats.slots.get(state, 0))
        undelivered = CounterMetricFamily(
            "pipeline_undelivered", "Results that a receiver did not take", labels=["receiver"]
        )
        for receiver, number in stats.undelivered.items():
            undelivered.add_metric([receiver], number)
        events = CounterMetricFamily(
            "pipeline_events",
            "Times that a camera, the engine or a sink came into a state",
            labels=["source", "state"],
        )
        for source, states in stats.events.items():
            for state, number in states.items():
                events.add_metric([source, state], number)
        yield events
        lag = GaugeMetricFamily(
            "pipeline_loop_lag_seconds", "Lateness of the event loop", labels=["quantile"]
        )
        lag.add_metric(["0.5"], stats.loop_lag_ms.p50 / 1e3)
        lag.add_metric(["0.99"], stats.loop_lag_ms.p99 / 1e3)
        yield stages
        yield lag
        yield slots
        yield undelivered
        yield GaugeMetricFamily(
            "pipeline_driver_memory_bytes", "Driver memory at most", value=stats.driver_bytes
        )
        yield CounterMetricFamily(
            "pipeline_driver_allocations", "Driver allocations", value=stats.driver_allocations[1]
        )
        yield CounterMetricFamily(
            "pipeline_engine_reopened", "Engine opened anew", value=stats.engine_reopened
        )


async def _on_loop(make: Callable[[], tuple[int, str, str]]) -> tuple[int, str, str]:
    return make()
