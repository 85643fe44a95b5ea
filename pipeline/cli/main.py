"""The command line: what each command does, exit codes, one clear line for each failure."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import json
import os
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

from pipeline.cli.arguments import Arguments, parse_arguments, wants_json
from pipeline.cli.report import StatusLine, ensure_writable, summary, table, write_json
from pipeline.cli.terminal import Terminal, stderr
from pipeline.errors import Abandoned, ClosedError, ConfigError, PipelineError, ReaderLeftError
from pipeline.redact import printable
from pipeline.signals import StopRequests

if TYPE_CHECKING:
    from pipeline.config.settings import Config
    from pipeline.flow.stats import Stats
    from pipeline.pipeline import Pipeline

__all__ = ["main"]

_terminal = Terminal()

_MISSING_LIBRARY = re.compile(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")


def main(argv: Sequence[str] | None = None, requests: StopRequests | None = None) -> int:
    """Run the command line; the exit code. ``requests`` counts signals already.

    0 done or drained, 2 bad configuration or arguments, 3 source, 4 engine or device, 5 sink,
    1 anything else. A part that hangs for good ends the process instead of returning.
    """
    _occupy_standard_descriptors()
    words = sys.argv[1:] if argv is None else argv
    with contextlib.suppress(FileNotFoundError):  # the folder was removed
        if not {"", os.getcwd()} & set(sys.path):  # as `python -m` does, for parts of one's own
            sys.path.append(os.getcwd())
    global _terminal
    _terminal = Terminal("json" if wants_json(words) else "text")
    try:
        arguments = parse_arguments(words)
    except ConfigError as error:
        _terminal.fail(str(error))
        return error.exit_code
    _terminal.show_log(quiet=arguments.quiet, debug=arguments.debug)
    try:
        with contextlib.nullcontext(requests) if requests else StopRequests() as heard:
            code = _COMMANDS[arguments.command](arguments, heard)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has enough; without this Python complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        _terminal.fail("interrupted")
        return 1
    except OSError as error:
        _terminal.fail(
            f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
        )
        return 1
    except Exception as error:
        return _failed(error, arguments.debug)
    return code


class _ClosedOutput(io.StringIO):
    """Standard output where it was closed: harmless until something is to be written there."""

    def writable(self) -> bool:
        """False, so that a writer can ask before it begins."""
        return False

    def write(self, text: str, /) -> int:
        """Refuse it."""
        raise OSError(errno.EBADF, "standard output is closed")


def _occupy_standard_descriptors() -> None:
    """Occupy 0, 1 and 2 if a launcher closed them; the next opened file would get one of them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is this one
    if sys.stdout is None:
        sys.stdout = _ClosedOutput()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _check(arguments: Arguments, requests: StopRequests) -> int:
    requests.refuse_any()
    from pipeline.cli.explain import describe
    from pipeline.config.loading import load

    config = load(arguments.config, arguments.overrides)
    if arguments.imports:
        from pipeline.machine.own_parts import import_named

        try:
            config = import_named(config)
        except ConfigError as error:
            return _failed(error, arguments.debug, arguments.config)
    plan = describe(config)
    if not arguments.quiet:
        sys.stdout.write(f"{plan}\n")
    return 0


def _devices(arguments: Arguments, requests: StopRequests) -> int:
    requests.refuse_any()
    from pipeline.parts import listed

    _write_columns(row for engine in listed("engines") for row in _devices_of(engine.name))
    return 0


def _devices_of(engine: str) -> list[tuple[str, str, str, str]]:
    from pipeline.engines import engine_module

    try:
        version, found = engine_module(engine).list_devices(None)
    except (PipelineError, ImportError) as error:
        return [(engine, "-", "-", f"not usable: {_message(error)}")]
    title = f"{engine} {version}"
    usable = [(title, device, name, "usable") for device, name in found]
    return usable or [(title, "-", "-", "not usable: it finds no device")]


def _parts(arguments: Arguments, requests: StopRequests) -> int:
    requests.refuse_any()
    from pipeline.parts import PARTS, listed

    _write_columns(part for group in PARTS for part in listed(group))
    return 0


def _write_columns(rows: Iterable[Sequence[str]]) -> None:
    """Rows on standard output, their columns aligned."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for *cells, last in rows:
        aligned = (f"{cell:<{width}}" for cell, width in zip(cells, widths[:-1], strict=True))
        sys.stdout.write(printable("  ".join([*aligned, last])) + "\n")


def _schema(arguments: Arguments, requests: StopRequests) -> int:
    requests.refuse_any()
    from pipeline.config.loading import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
    return 0


def _run(arguments: Arguments, requests: StopRequests) -> int:
    from pipeline.config.loading import load, refuse_overwriting

    extra = []
    if arguments.jsonl is not None:
        path = arguments.jsonl
        if path != "-":
            path = os.path.abspath(os.path.expanduser(path))
        extra.append({"kind": "jsonl", "path": path})
    config = load(arguments.config, arguments.overrides, extra)
    for option in ("jsonl", "summary"):
        if (path := getattr(arguments, option)) is not None:
            ensure_writable(path, f"--{option}")
    if arguments.summary is not None:
        refuse_overwriting(config, arguments.config, "--summary", arguments.summary)
    from pipeline.pipeline import Pipeline, new_event_loop

    if requests.count:
        return 0
    from pipeline.cli.explain import remarks

    for remark in () if arguments.quiet else remarks(config):
        _terminal.report(f"note: {remark}")
    pipeline = Pipeline(config, max_frames=arguments.frames)
    runner = asyncio.Runner(loop_factory=new_event_loop)
    failure: BaseException | None = None
    try:
        runner.run(_drive(pipeline, config, requests, arguments))
    except (Exception, asyncio.CancelledError) as error:
        failure = error
    code = _finish(pipeline, arguments, failure, requests.count)
    if pipeline.abandoned:
        _abandon(pipeline.abandoned, code)
    runner.close()
    return code


def _bench(arguments: Arguments, requests: StopRequests) -> int:
    from pipeline.config.loading import load, refuse_overwriting

    config = load(arguments.config, arguments.overrides)
    if arguments.json is not None:
        ensure_writable(arguments.json, "--json")
        refuse_overwriting(config, arguments.config, "--json", arguments.json)
    from pipeline.bench.bench import Bench
    from pipeline.cli.bench import measure, publish

    def report_progress(text: str) -> None:
        if not arguments.quiet:
            _terminal.report(text)

    bench = Bench(config, arguments.seconds, arguments.rate, report_progress, arguments.rounds)
    report, code = None, 1
    try:
        report = measure(bench, requests, report_progress)
        if report is None:
            _terminal.fail("stopped before all was measured")
    except Exception as error:
        code = _failed(error, arguments.debug, arguments.config)
    if report is not None:
        publish(report, bench.config, arguments.json, quiet=arguments.quiet)
        code = 0
    if bench.abandoned:
        _abandon(bench.abandoned, code)
    return code


def _abandon(parts: Sequence[Abandoned], code: int) -> NoReturn:
    """End the process: threads that hang would keep the interpreter from ending."""
    codes = [part.kind.exit_code for part in parts if part.kind is not None]
    hanging = next(
        (code for code in codes if code != PipelineError.exit_code), max(codes, default=0)
    )
    report, mark = _terminal.report, "what hung before"
    if hanging:
        report, mark = _terminal.fail, "did not stop in time and"
    report(f"{mark} was abandoned: {', '.join(part.name for part in parts)}")
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code or hanging)


async def _drive(
    pipeline: Pipeline, config: Config, requests: StopRequests, arguments: Arguments
) -> None:
    """Run to the end of the source, or until the first request to stop has drained it."""
    from pipeline.service.service import Service

    quiet = arguments.quiet
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def report_progress(text: str) -> None:
        if not quiet:
            _terminal.report(text)

    def on_stop(count: int) -> None:
        if count == 1:
            report_progress(f"stopping, at most {config.drain_s:g} s; once more to cancel")
            stop.set()
        elif count == 2:
            report_progress("cancelling")
            pipeline.cancel()
        else:
            _terminal.fail("ended at once, without closing anything")
            stderr.wait()
            os._exit(1)

    async def drain_when_asked() -> None:
        await stop.wait()
        await pipeline.drain(config.drain_s)

    line = StatusLine(lambda: _stats(pipeline), stderr)
    drainer = asyncio.create_task(drain_when_asked())
    requests.attach(loop, on_stop)
    try:
        if not quiet and not _terminal.json:
            line.start(loop)
        async with (
            pipeline,
            Service(pipeline, host=arguments.health_host, port=arguments.health),
        ):
            await pipeline.wait()
    finally:
        line.stop()
        drainer.cancel()
        await asyncio.wait({drainer})
        requests.detach()
    if not drainer.cancelled() and (error := drainer.exception()) is not None:
        raise error


def _finish(
    pipeline: Pipeline, arguments: Arguments, failure: BaseException | None, stops: int
) -> int:
    """Report the run, and return its exit code."""
    if isinstance(failure, ClosedError | asyncio.CancelledError) and stops == 1:
        failure = None  # stopped before it was running
    if isinstance(failure, ReaderLeftError):
        failure = None
    stats = _stats(pipeline)
    if stats is not None and not arguments.quiet and (stats.frames or failure is None):
        if _terminal.json:
            _terminal.record("info", "summary", summary=summary(stats))
        else:
            _terminal.report(table(stats))
    code = 0
    if stops > 1 and (failure is None or isinstance(failure, ClosedError | asyncio.CancelledError)):
        lost = stats is not None and stats.dropped.get("cancelled")
        _terminal.fail("cancelled" + (", what was in flight is lost" if lost else ""))
        code = 1
    elif failure is not None:
        code = _failed(failure, arguments.debug, arguments.config)
    if stats is not None and arguments.summary is not None:
        try:
            write_json(arguments.summary, summary(stats), "--summary")
        except PipelineError as error:
            code = code or _failed(error, arguments.debug)
    return code


def _stats(pipeline: Pipeline) -> Stats | None:
    try:
        return pipeline.stats()
    except PipelineError:
        return None  # it was never open


def _failed(error: BaseException, debug: bool, config: str | None = None) -> int:
    """Print what went wrong, with the file whose setting is to blame; the exit code for it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if debug:
        _terminal.report("".join(traceback.format_exception(error)).rstrip())
    if config is not None and isinstance(error, PipelineError):
        for each in error.errors or (error,):
            each.locate(file=config if each.path else "")
    for line in _message(error).splitlines() or [type(error).__name__]:
        _terminal.fail(line)
    return error.exit_code if isinstance(error, PipelineError) else 1


def _message(error: BaseException) -> str:
    if isinstance(error, PipelineError):
        return str(error)
    if isinstance(error, ImportError):
        if missing := _MISSING_LIBRARY.search(str(error)):
            return f"OpenCV needs {missing[1]}, which is missing; apt install libgl1 libglib2.0-0"
        if "'_native'" in str(error):
            return "the native module is not built; pip install . in a clone of npu-pipeline"
        if isinstance(error, ModuleNotFoundError):
            name = (error.name or "").partition(".")[0]
            return f"{error}; pip install {'npu-pipeline' if name == 'pipeline' else name}"
    return f"internal: {type(error).__name__}: {error}; --debug shows where"


_COMMANDS = {
    "bench": _bench,
    "check": _check,
    "devices": _devices,
    "parts": _parts,
    "run": _run,
    "schema": _schema,
}
