"""Arguments of the command line."""

from __future__ import annotations

import argparse
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Literal, NoReturn, cast

from pipeline.errors import ConfigError

__all__ = ["Arguments", "parse_arguments", "wants_json"]

Command = Literal["bench", "check", "devices", "run", "schema"]

_COMMANDS = ("bench", "check", "devices", "schema")
_FLAGS = ("-h", "--help", "--version", "--quiet", "--debug")
_PROGRAM = "python -m pipeline"
_ABOUT = """\
Streams video through a model on a ring of buffers that the inference device owns.

commands, instead of a configuration:
  check CONFIG.yaml   check a configuration and print what it is going to do; opens nothing
  bench CONFIG.yaml   measure each stage alone and the whole, and tell what would help
  devices             each engine and device of this machine, usable or why not
  schema              JSON Schema of the configuration, for editors
  (a configuration that has such a name is reached as ./check)
"""
_EXAMPLES = """\
examples:
  %(prog)s configs/demo.yaml
  %(prog)s camera.yaml --set source.uri=1 --set model.device=GPU
  %(prog)s camera.yaml --frames 500 --jsonl out/results.jsonl --summary out/summary.json
  %(prog)s check camera.yaml
  %(prog)s bench camera.yaml --json out/bench.json

Ctrl-C lets what is in flight come through and ends with 0; a second one cancels.
exit codes: 0 done, 2 bad configuration or arguments, 3 source, 4 engine or device, 5 sink,
1 anything else
"""


@dataclass(frozen=True)
class Arguments:
    """Arguments of the user."""

    command: Command
    config: str = ""
    overrides: tuple[str, ...] = ()
    frames: int | None = None
    jsonl: str | None = None
    summary: str | None = None
    health: int | None = None
    health_host: str = "127.0.0.1"
    log: Literal["text", "json"] = "text"
    json: str | None = None
    seconds: float = 3.0
    rate: float | None = None
    rounds: int = 1
    quiet: bool = False
    debug: bool = False


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Read the arguments; ends the process with 2 and a message when they are wrong.

    Under ``--log json`` it raises ConfigError with the message instead. A command may stand
    behind options, as in ``--debug check x.yaml``.
    """
    words = list(argv)
    first = _first_positional(words)
    command = words.pop(first) if first is not None and words[first] in _COMMANDS else "run"
    found = _parser(command, wants_json(words)).parse_args(words)
    return Arguments(
        command=cast(Command, command),
        config=getattr(found, "config", ""),
        overrides=tuple(getattr(found, "set", ())),
        frames=getattr(found, "frames", None),
        jsonl=getattr(found, "jsonl", None),
        summary=getattr(found, "summary", None),
        health=getattr(found, "health", None),
        health_host=getattr(found, "health_host", "127.0.0.1"),
        log=getattr(found, "log", "text"),
        json=getattr(found, "json", None),
        seconds=getattr(found, "seconds", 3.0),
        rate=getattr(found, "rate", None),
        rounds=getattr(found, "rounds", 1),
        quiet=found.quiet,
        debug=found.debug,
    )


def wants_json(words: Sequence[str]) -> bool:
    """True if lines on standard error are to be JSON, as far as arguments can be read at all."""
    return "--log=json" in words or ("--log", "json") in pairwise(words)


def _first_positional(words: Sequence[str]) -> int | None:
    """Index of the first word that is no option and no value of one."""
    number = 0
    while number < len(words):
        word = words[number]
        if not word.startswith("-") or word == "-":
            return number
        number += 1 if "=" in word or word in _FLAGS else 2
    return None


class _Parser(argparse.ArgumentParser):
    raises = False

    def error(self, message: str) -> NoReturn:
        if self.raises:
            raise ConfigError(message)
        super().error(message)


def _parser(command: str, raises: bool) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROGRAM if command == "run" else f"{_PROGRAM} {command}",
        description=_ABOUT if command == "run" else _line_about(command),
        epilog=_EXAMPLES if command == "run" else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.raises = raises
    if command in ("run", "bench", "check"):
        parser.add_argument("config", metavar="CONFIG.yaml", help="the configuration")
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="PATH.TO.KEY=VALUE",
            help="override one value of the configuration; VALUE is YAML, relative paths in it "
            "start at the configuration's folder; may be given several times",
        )
    if command == "run":
        _add_run_options(parser)
        parser.add_argument("--version", action="version", version=_version())
    if command == "bench":
        _add_bench_options(parser)
    parser.add_argument(
        "--log", choices=("text", "json"), default="text", help="form of the lines on stderr"
    )
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.add_argument("--debug", action="store_true", help="log more, and errors with traceback")
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--frames",
        type=_positive,
        metavar="N",
        help="end after N frames, of each camera; one that is lost or not there yet is waited "
        "for, unless its at_start or reconnect.attempts says otherwise",
    )
    parser.add_argument(
        "--jsonl",
        metavar="FILE",
        help="write results to FILE (-: stdout), too, one JSON object a line",
    )
    parser.add_argument(
        "--summary", metavar="FILE", help="write the figures of the run to FILE (-: stdout) as JSON"
    )

    parser.add_argument(
        "--health",
        type=_port,
        metavar="PORT",
        help="answer /healthz and /metrics (Prometheus) at this port; 0: at any free one",
    )
    parser.add_argument(
        "--health-host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to answer at, instead of this machine's own (127.0.0.1)",
    )


def _add_bench_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write the figures to FILE as JSON; with -, to standard output in place of the table",
    )
    parser.add_argument(
        "--seconds",
        type=_amount,
        default=3.0,
        metavar="N",
        help="how long each of the measurements takes (default: 3)",
    )
    parser.add_argument(
        "--rate",
        type=_amount,
        metavar="FPS",
        help="frames a second of the live run (default: half of what was reached, but not more "
        "than the source's own)",
    )
    parser.add_argument(
        "--rounds",
        type=_positive,
        default=1,
        metavar="N",
        help="measure parts and whole in turn, so often, and tell the median of each (default: 1)",
    )


def _amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.01 <= value <= 1e5:
        raise argparse.ArgumentTypeError(f"needs a number from 0.01 to 100000, got {text!r}")
    return value


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"needs a port from 0 to 65535, got {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"needs a whole number of at least 1, got {text!r}")
    return int(text)


def _line_about(command: str) -> str:
    line = next(line for line in _ABOUT.splitlines() if line.startswith(f"  {command} "))
    return textwrap.fill(line.removeprefix(f"  {command} ").split("  ")[-1].strip().capitalize())


def _version() -> str:
    try:
        return f"npu-pipeline {version('npu-pipeline')}"
    except PackageNotFoundError:
        return "npu-pipeline, not installed"
