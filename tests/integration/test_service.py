"""The command line as a service: health, metrics, systemd and logs for machines."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.waiting import until

ROOT = Path(__file__).parents[2]
WATCHDOG = 60.0

CONFIG = """\
cameras:
  front: {uri: "synthetic:", width: 64, height: 48, fps: 100}
  gone: {uri: "rtsp://me:secret@127.0.0.1:9/x", reconnect: {initial_s: 0.05, max_s: 0.1}}
model: {engine: simulated, input_shape: [1, 48, 64, 3], options: {latency_ms: 1}}
sinks: [{kind: jsonl, path: out.jsonl}]
"""
ALONE = CONFIG.replace("  gone:", "  # gone:")


class Service:
    """A running command line and what it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []

    def line(self, pattern: str) -> re.Match[str]:
        """The next line on stderr that has this."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"it ended without {pattern!r}: {''.join(self.said)}")

    def stop(self) -> str:
        """Ask it to end; all that it said."""
        self.process.send_signal(signal.SIGTERM)
        _, rest = self.process.communicate(timeout=WATCHDOG)
        return "".join(self.said) + rest


@contextlib.contextmanager
def service(folder: Path, config: str, *arguments: str, **env: str) -> Iterator[Service]:
    (folder / "camera.yaml").write_text(config)
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "camera.yaml", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Service(process)
        finally:
            process.kill()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=WATCHDOG) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metrics(base: str) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels, in order of the labels' names."""
    status, text = get(f"{base}/metrics")
    assert status == 200
    return {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_health_and_metrics_tell_each_camera(tmp_path: Path) -> None:
    with service(tmp_path, CONFIG, "--health", "0") as running:
        base = running.line(r"health: (http://127\.0\.0\.1:\d+)/healthz").group(1)
        until(lambda: metrics(base).get(("pipeline_results_total", "front"), 0) >= 20)
        until(lambda: metrics(base).get(("pipeline_events_total", "gone", "lost"), 0) >= 2)
        status, body = get(f"{base}/healthz")
        told = json.loads(body)
        assert (status, told["ok"]) == (503, False)
        assert [problem.split(":")[0] for problem in told["problems"]] == ["camera gone"]
        found = metrics(base)
        assert found["pipeline_camera_live", "front"] == 1
        assert found["pipeline_camera_live", "gone"] == 0
        assert found["pipeline_frames_total", "front"] >= found["pipeline_results_total", "front"]
        assert found["pipeline_age_seconds_count", "front"] >= 20
        assert found["pipeline_age_seconds_bucket", "front", "+Inf"] >= 20
        infer = found["pipeline_stage_seconds_count", "front", "infer"]
        assert infer >= 20
        assert 0 < found["pipeline_stage_seconds_sum", "front", "infer"] / infer < 1
        assert found[("pipeline_loop_lag_seconds_count",)] >= 1
        slots = [value for name, value in found.items() if name[0] == "pipeline_slots"]
        assert sum(slots) == 4
        assert found[("pipeline_driver_memory_bytes",)] > 0
        assert get(f"{base}/else")[0] == 404
        said = running.stop()
    assert running.process.returncode == 0
    assert "secret" not in said


def test_a_service_that_is_well_says_so_and_answers_on_loopback_only(tmp_path: Path) -> None:
    with service(tmp_path, ALONE, "--health", "0") as running:
        port = int(running.line(r"health: http://127\.0\.0\.1:(\d+)/healthz").group(1))
        base = f"http://127.0.0.1:{port}"
        until(lambda: metrics(base).get(("pipeline_results_total", "front"), 0) >= 1)
        assert get(f"{base}/healthz") == (200, '{"ok": true, "problems": []}\n')
        with socket.socket() as other, pytest.raises(ConnectionRefusedError):
            other.connect(("127.0.0.2", port))
        running.stop()
    assert running.process.returncode == 0


def test_a_port_that_is_taken_is_an_error_of_the_arguments(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with service(tmp_path, ALONE, "--health", port) as running:
            running.line(
                rf"error: --health: cannot listen on 127\.0\.0\.1:{port}: Address already in use"
            )
            running.process.wait(WATCHDOG)
    assert running.process.returncode == 2


def test_systemd_hears_when_it_is_ready_alive_and_stopping(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(WATCHDOG)
        receiver.bind(str(tmp_path / "notify"))
        env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "100000"}
        with service(tmp_path, ALONE, **env) as running:
            assert receiver.recv(100) == b"READY=1"
            assert [receiver.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            running.stop()
        heard = b"WATCHDOG=1"
        while heard == b"WATCHDOG=1":
            heard = receiver.recv(100)
        assert heard == b"STOPPING=1"


def test_every_line_is_json_when_asked_for(tmp_path: Path) -> None:
    with service(tmp_path, CONFIG, "--log", "json") as running:
        running.line(r'"source": "gone", "state": "lost"')
        said = running.stop()
    assert running.process.returncode == 0
    lines: list[dict[str, Any]] = [json.loads(line) for line in said.splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    assert any(line["message"].startswith("stopping") for line in lines)
    summary = next(line["summary"] for line in lines if line["message"] == "summary")
    assert summary["cameras"]["front"]["results"] == summary["results"]
    assert summary["events"]["gone"]["lost"] >= 1
    assert "secret" not in said


def test_a_camera_that_is_lost_for_hours_does_not_fill_the_log(tmp_path: Path) -> None:
    with service(tmp_path, CONFIG, "--health", "0") as running:
        base = running.line(r"health: (http://127\.0\.0\.1:\d+)/healthz").group(1)
        until(lambda: metrics(base).get(("pipeline_events_total", "gone", "lost"), 0) >= 20)
        said = running.stop()
    assert 1 <= said.count("gone: lost") <= 10
