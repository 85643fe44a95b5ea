"""This library side by side with what else is used: the same clip, model, device and results.

    python tests/benchmarks/against_peers.py --work DIR [--rounds 5] [--frames 1800]
        [--only ours,gstreamer] [--suite | --model det --clip 640x480] [--json FILE]
        [--markdown FILE] [--ours-python PYTHON | --install-ours]

Every peer is a small file in ``peers/`` that says how it was tuned. Below ``DIR`` each gets a
virtual environment of its own, made with pip; what cannot be had is left out, and told. In each
round every peer runs once, in a process of its own, in an order that moves on with each round.
All of them compute in float32 on OpenVINO's CPU device, with as many threads as they like, and
hand every frame's outputs to the same postprocess; frames are counted, results are compared.

Prints medians, and medians of the ratios within each round, so that what a shared machine does
in one round does not matter much. ``limit`` is no peer: see ``peers/limit.py``.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.peers.common import TAIL, WARM_UP
from tests.benchmarks.peers.environments import PEERS, MissingError, interpreter
from tests.benchmarks.peers.figures import differing, markdown, rows, table

__all__: list[str] = []

SUITE = (("det", "640x480"), ("tiny", "640x480"), ("det", "1920x1080"))
_ONE = Path(__file__).resolve().parent / "peers" / "common.py"
_LONGEST_S = 900


def prepare(given: argparse.Namespace) -> dict[str, str]:
    """The interpreter of each peer that can be run here."""
    ours = given.ours_python
    if given.install_ours:
        ours = None
        os.environ.pop("PYTHONPATH", None)
    found = {}
    for name in given.only.split(",") if given.only else PEERS:
        if name not in PEERS:
            raise SystemExit(f"no peer {name!r}; there are {', '.join(PEERS)}")
        try:
            found[name] = interpreter(PEERS[name].environment, given.work, ours)
        except MissingError as error:
            _tell(f"{name}: left out, {error}")
    return found


def repeated(clip: Path, frames: int, folder: Path) -> Path:
    """The clip played again and again, as one file of ``frames`` frames, without encoding."""
    import av

    target = folder / f"{clip.stem}-{frames}.mp4"
    part = target.with_suffix(".part")
    if target.exists():
        return target
    with av.open(str(part), "w", format="mp4") as out:
        stream: Any = None
        for number, (given, packet) in enumerate(_packets(clip, frames)):
            stream = stream or out.add_stream_from_template(given)
            packet.pts = packet.dts = number * round(1 / given.average_rate / given.time_base)
            packet.stream = stream
            out.mux(packet)
    return part.rename(target)


def _packets(clip: Path, frames: int) -> Iterator[tuple[Any, Any]]:
    import av

    number = 0
    while number < frames:
        with av.open(str(clip)) as movie:
            given = movie.streams.video[0]
            for packet in movie.demux(given):
                if packet.dts is not None and number < frames:
                    number += 1
                    yield given, packet


def measure(
    pythons: dict[str, str], clip: Path, model: str, models: Path, rounds: int
) -> dict[str, list[dict[str, Any]]]:
    """What each peer reported in each round. One that fails is told and left out."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in pythons}
    for number in range(rounds):
        names = list(found)
        start = number % len(names)
        for name in [*names[start:], *names[:start]]:
            command = [pythons[name], str(_ONE), PEERS[name].module, str(clip), model]
            try:
                report = _run([*command, "--models", str(models)], _variables(name))
            except MissingError as error:
                _tell(f"{name}: left out, {error}")
                del found[name]
                if not found:
                    raise SystemExit("no peer could be run") from error
                continue
            found[name].append(report)
            _tell(f"round {number + 1}, {model} {clip.stem}, {name}: {_short(report)}")
    return found


def _run(command: list[str], variables: dict[str, str]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=_LONGEST_S
        )
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"not done after {_LONGEST_S} s") from error
    if done.returncode:
        raise MissingError((done.stderr.strip() or "failed").splitlines()[-1])
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def _variables(name: str) -> dict[str, str]:
    """Of this process and the peer's own; where Python looks is for the library alone."""
    given = dict(os.environ)
    if PEERS[name].environment != "ours":
        given.pop("PYTHONPATH", None)
    return given | PEERS[name].variables


def machine() -> str:
    """Processor, cores that may be used, system."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "?")
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {model}, {platform.system()} {platform.machine()}"


class Elsewhere:
    """How many cores other processes kept busy since it was made."""

    def __init__(self) -> None:
        self._began = self._now()

    def cores(self) -> float:
        """The mean."""
        busy, own, wall = (new - old for new, old in zip(self._now(), self._began, strict=True))
        return max(0.0, busy - own) / wall

    @staticmethod
    def _now() -> tuple[float, float, float]:
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        busy = (sum(ticks) - ticks[3] - ticks[4] - ticks[7]) / os.sysconf("SC_CLK_TCK")
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return busy, usage.ru_utime + usage.ru_stime, time.monotonic()


def versions(found: dict[str, list[dict[str, Any]]]) -> str:
    """Of all packages; several where the environments differ."""
    told: dict[str, set[str]] = {}
    for reports in found.values():
        for name, version in reports[0]["versions"].items() if reports else ():
            told.setdefault(name, set()).add(version)
    return ", ".join(f"{name} {' and '.join(sorted(told[name]))}" for name in sorted(told))


def document(parts: list[tuple[str, str]], notes: list[str], names: Iterable[str]) -> str:
    """The generated page: how it was made, then a table for each model and clip."""
    lines = [
        "# Side by side with its peers",
        "",
        "Written by this command; do not edit, run it again:",
        "",
        f"    python tests/benchmarks/against_peers.py {_command(sys.argv[1:])}",
        "",
        *[f"- {note}" for note in notes],
        "",
        "Medians of frames a second, of CPU milliseconds of the whole process for a frame, and of",
        "peak memory. Ratios are medians of those within each round: more is better for fps, less",
        "for CPU; if they are far from the ratios of the medians, the rounds differed.",
        "`+malloc` is the same with glibc's allocator tuned by environment variables.",
        "`limit` is what the parts of this library allow, as [benchmark.md](benchmark.md) has it.",
        "Each peer's file in `tests/benchmarks/peers/` shows how it was written and tuned:",
        "",
    ]
    for module in dict.fromkeys(PEERS[name].module for name in names):
        lines.append(f"- `{module}`: {_first_sentence(module)}")
    for heading, text in parts:
        lines += ["", f"## {heading}", "", text]
    return "\n".join(lines) + "\n"


def _first_sentence(module: str) -> str:
    """Of the docstring of a peer's file."""
    text = ast.get_docstring(ast.parse(_ONE.with_name(f"{module}.py").read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def _command(words: list[str]) -> str:
    """The arguments, without the folders and interpreters of this machine."""
    told = {"--work": "DIR", "--json": "FILE", "--markdown": "FILE", "--ours-python": "PYTHON"}
    after = ["", *words]
    return " ".join(told.get(last, word) for last, word in zip(after, words, strict=False))


def main() -> None:
    """Prepare, measure, print, write."""
    given = _arguments()
    given.work = given.work.resolve()
    models = given.work / "load"
    pythons = prepare(given)
    if not pythons:
        raise SystemExit("there is nothing to run")
    _make_workload(models)
    parts, raw, wrong, elsewhere, told = [], {}, False, Elsewhere(), ""
    for model, size in SUITE if given.suite else [(given.model, given.clip)]:
        clip = repeated(models / f"{size}.mp4", given.frames + WARM_UP + TAIL, models)
        found = measure(pythons, clip, model, models, given.rounds)
        made, told = rows(found), told or versions(found)
        heading = f"Model `{model}`, clip {size}"
        print(f"\n{heading}\n{table(made)}", flush=True)  # noqa: T201
        for name in differing(found):
            wrong = True
            _tell(f"{name}: its results are not those of ours")
        parts.append((heading, markdown(made)))
        raw[f"{model} {size}"] = {
            "rounds": found,
            "rows": [row._asdict() for row in made],
        }
    busy = f"other processes kept {elsewhere.cores():.2g} cores busy meanwhile"
    notes = [machine(), busy, f"{given.rounds} rounds of {given.frames} frames", told]
    print("\n" + "\n".join(notes))  # noqa: T201
    if given.json:
        given.json.write_text(json.dumps({"notes": notes, **raw}, indent=1) + "\n")
    if given.markdown:
        given.markdown.write_text(document(parts, notes, pythons))
    if wrong:
        raise SystemExit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="for environments and clips")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=1800)
    parser.add_argument("--only", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--model", choices=("det", "tiny"), default="det")
    parser.add_argument("--clip", default="640x480")
    parser.add_argument("--suite", action="store_true", help="all three pairs of the document")
    parser.add_argument("--ours-python", default=sys.executable, help="has this library")
    parser.add_argument("--install-ours", action="store_true", help="from this checkout, instead")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args()


def _make_workload(folder: Path) -> None:
    from tests.benchmarks.workload import make

    make(folder)


def _short(report: dict[str, Any]) -> str:
    return f"{report['fps']:.0f} fps, {report['cpu_ms']:.2f} CPU ms"


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
