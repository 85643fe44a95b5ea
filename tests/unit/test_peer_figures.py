"""Medians and ratios of the benchmark against peers."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.peers.figures import differing, markdown, rows

ROUNDS: dict[str, list[dict[str, Any]]] = {
    "ours": [
        {"fps": 400, "cpu_ms": 4, "rss_mb": 200, "checksum": 3.0},
        {"fps": 100, "cpu_ms": 6, "rss_mb": 210, "checksum": 3.0},
        {"fps": 300, "cpu_ms": 5, "rss_mb": 205, "checksum": 3.0},
    ],
    "limit": [{"fps": 500, "cpu_ms": 2}, {"fps": 200, "cpu_ms": 4}, {"fps": 300, "cpu_ms": 5}],
    "idle": [{"fps": 100, "cpu_ms": 1, "rss_mb": 1, "checksum": 0.0}] * 3,
}


def test_ratios_are_those_within_a_round() -> None:
    ours, limit, idle = rows(ROUNDS)
    assert (ours.fps, ours.cpu_ms, ours.rss_mb, ours.fps_ratio) == (300, 5, 205, None)
    # 0.8, 0.5 and 1 in the three rounds, though the medians are both 300.
    assert (limit.fps, limit.fps_ratio, limit.cpu_ratio, limit.rss_mb) == (300, 0.8, 1.5, None)
    assert (idle.fps_ratio, idle.cpu_ratio) == (3, 5)
    assert markdown([limit]).splitlines()[-1] == "| limit | 300 | 4.00 |  | 0.80 | 1.50 |"


def test_a_peer_with_other_results_is_told() -> None:
    assert differing(ROUNDS) == ["idle"]
