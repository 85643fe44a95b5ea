"""``python -m pipeline bench``: run it until it is done or a signal stops it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from pipeline.bench.bench import Bench
from pipeline.bench.figures import Report
from pipeline.bench.show import data, table
from pipeline.bench.verdict import verdict
from pipeline.cli.report import write_json
from pipeline.config.settings import Config
from pipeline.pipeline import new_event_loop
from pipeline.signals import StopRequests

__all__ = ["measure", "publish"]


def measure(
    bench: Bench, requests: StopRequests, report_progress: Callable[[str], None]
) -> Report | None:
    """The report; None if a signal stopped it before all was measured."""
    runner = asyncio.Runner(loop_factory=new_event_loop)
    try:
        return runner.run(_until_stopped(bench, requests, report_progress))
    finally:
        if not bench.abandoned:  # else the process is about to end without it
            runner.close()


async def _until_stopped(
    bench: Bench, requests: StopRequests, report_progress: Callable[[str], None]
) -> Report | None:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(bench.run())

    def on_stop(count: int) -> None:
        if count > 1:
            os._exit(1)
        report_progress("stopping; once more to end at once")
        task.cancel()

    requests.attach(loop, on_stop)
    try:
        return await task
    except asyncio.CancelledError:
        if not requests.count:
            raise
        return None
    finally:
        requests.detach()


def publish(report: Report, config: Config, json_path: str | None, *, quiet: bool) -> None:
    """Write the JSON, and the table where it does not go to standard output itself. SinkError."""
    judged = verdict(report, config)
    if not quiet and json_path != "-":
        sys.stdout.write(f"{table(report, judged)}\n")
        sys.stdout.flush()
    if json_path is not None:
        write_json(json_path, data(report, judged), "--json")
