"""Arguments of the command line."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Literal, NoReturn

from pipeline.errors import ConfigError
from pipeline.problems import nearest

__all__ = ["Arguments", "parse_arguments", "wants_json"]

_COMMANDS = {
    "run": "run a configuration; `run` may be left out",
    "check": "check a configuration and print what it does; opens nothing",
    "bench": "measure each stage alone and the whole; advise on settings",
    "devices": "list engines and devices of this machine: usable, or why not",
    "parts": "list sources, engines, postprocess and sinks: built in, or of installed packages",
    "schema": "print the JSON Schema of the configuration, for editors",
}
_EXAMPLES = """\
examples:
  python -m pipeline configs/demo.yaml
  python -m pipeline camera.yaml --set source.uri=1 --set model.device=GPU
  python -m pipeline camera.yaml --frames 500 --jsonl out/results.jsonl --summary out/summary.json
  python -m pipeline check camera.yaml
  python -m pipeline bench camera.yaml --json out/bench.json
  python -m pipeline run --help

Ctrl-C finishes the frames in flight and exits with 0; a second one cancels. A configuration
with the name of a command is reached as ./check.
exit codes: 0 done, 2 configuration or arguments, 3 source, 4 engine or device, 5 sink,
1 anything else
"""


@dataclass(frozen=True)
class Arguments:
    """Arguments of the user."""

    command: Literal["bench", "check", "devices", "parts", "run", "schema"]
    config: str = ""
    overrides: Sequence[str] = ()
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
    imports: bool = False
    quiet: bool = False
    debug: bool = False


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Read the arguments; ends the process with 2 and a message when they are wrong.

    Under ``--log json`` it raises ConfigError with the message instead. A command may stand
    behind options, as in ``--debug check x.yaml``.
    """
    words = list(argv)
    parser, commands = _parser(_RaisingParser if wants_json(words) else argparse.ArgumentParser)
    options = {name: _options(each) for name, each in commands.items()}
    first = _first_positional(words, options)
    if not words:
        parser.print_help(sys.stderr)
        sys.exit(2)
    command = "run"
    if first is None:
        if not {"-h", "--help", "--version"}.isdisjoint(words):
            parser.parse_args(words)
    elif words[first] in commands:
        command = words.pop(first)
    else:
        meant = nearest(words[first], commands)
        if meant and not _is_file(words[first]):
            parser.error(f"unknown command {words[first]!r}; did you mean {meant!r}?")
    for word in words:
        option = word.partition("=")[0]
        owners = [name for name, own in options.items() if option in own]
        if owners and command not in owners:
            commands[command].error(f"{command} has no {option}; {' and '.join(owners)} has")
    found = parser.parse_args([command, *words])
    return Arguments(**vars(found))


def wants_json(words: Sequence[str]) -> bool:
    """True if lines on standard error are to be JSON, as far as arguments can be read at all."""
    return "--log=json" in words or ("--log", "json") in pairwise(words)


def _options(parser: argparse.ArgumentParser) -> dict[str, bool]:
    """Options of a command, and whether each takes a value."""
    return {name: action.nargs != 0 for action in parser._actions for name in action.option_strings}


def _first_positional(words: Sequence[str], options: dict[str, dict[str, bool]]) -> int | None:
    """Index of the first word that is no option and no value of one."""
    takes_value = {name: value for own in options.values() for name, value in own.items()}
    number = 0
    while number < len(words):
        word = words[number]
        if not word.startswith("-") or word == "-":
            return number
        number += 2 if takes_value.get(word, "=" not in word) else 1
    return None


def _is_file(word: str) -> bool:
    return os.path.splitext(word)[1] != "" or os.sep in word or os.path.exists(word)


class _RaisingParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def _parser(
    kind: type[argparse.ArgumentParser],
) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser, and those of its commands."""
    parser = kind(
        prog="python -m pipeline",
        usage="%(prog)s [COMMAND] [CONFIG.yaml] [OPTIONS]",
        description="Stream video through a model, on a ring of buffers that the device owns.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", prog=parser.prog
    )
    shared = [_shared_options()]
    configured = [_configuration(), *shared]
    for name, text in _COMMANDS.items():
        parents = shared if name in ("devices", "parts", "schema") else configured
        added = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=_EXAMPLES if name == "run" else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=parents,
            allow_abbrev=False,
        )
        if name == "run":
            added.add_argument("--version", action="version", version=_version())
            _add_run_options(added)
        elif name == "bench":
            _add_bench_options(added)
        elif name == "check":
            added.add_argument(
                "--import",
                action="store_true",
                dest="imports",
                help="also import the parts of your own and check their options",
            )
    return parser, dict(commands.choices)


def _configuration() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("config", metavar="CONFIG.yaml", help="the configuration")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="PATH.TO.KEY=VALUE",
        help="override one value of the configuration; may be repeated. VALUE is YAML; relative "
        "paths in it start at the folder of the configuration",
    )
    return parser


def _shared_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--log", choices=("text", "json"), default="text", help="format of the lines on stderr"
    )
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.add_argument("--debug", action="store_true", help="log more, and tracebacks of errors")
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--frames",
        type=_positive,
        metavar="N",
        help="end after N frames of each camera; a camera that is lost or not there yet is waited "
        "for, unless its at_start or reconnect.attempts says otherwise",
    )
    parser.add_argument(
        "--jsonl",
        metavar="FILE",
        help="also write results to FILE (-: stdout), one JSON object a line",
    )
    parser.add_argument(
        "--summary",
        metavar="FILE",
        help="write the figures of the run to FILE (-: stdout), as JSON",
    )

    parser.add_argument(
        "--health",
        type=_port,
        metavar="PORT",
        help="serve /healthz and /metrics (Prometheus) at this port; 0: any free port",
    )
    parser.add_argument(
        "--health-host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to serve at (default: 127.0.0.1, this machine only)",
    )


def _add_bench_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write the figures to FILE as JSON; -: to stdout, in place of the table",
    )
    parser.add_argument(
        "--seconds",
        type=_amount,
        default=3.0,
        metavar="N",
        help="duration of each measurement in seconds (default: 3)",
    )
    parser.add_argument(
        "--rate",
        type=_amount,
        metavar="FPS",
        help="frames per second of the live run (default: half of the rate reached, at most the "
        "source's own)",
    )
    parser.add_argument(
        "--rounds",
        type=_positive,
        default=1,
        metavar="N",
        help="repeat all measurements N times in turn and report medians (default: 1)",
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


def _version() -> str:
    try:
        return f"npu-pipeline {version('npu-pipeline')}"
    except PackageNotFoundError:
        return "npu-pipeline, not installed"
