"""Verdict of a bench: the limit of the parts, the bottleneck, and the setting that would help."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.bench.figures import InferFigures, Report, StageFigures
from pipeline.config.settings import Config
from pipeline.machine.wiring import ring_depth
from pipeline.postprocess import OwnPostprocessSettings
from pipeline.text import shown

__all__ = ["Verdict", "verdict"]

CPU = "cpu"
# Less than this share of the limit, and what lies between the stages is worth a look, too.
_GOOD_SHARE = 0.9
_CLEARLY = 1.15
_TOO_GOOD = 1.1
_FEW = 0.05  # of the cores
_OTHER_DEVICE = 'another device ("python -m pipeline devices" lists them)'


class Verdict(NamedTuple):
    """Frames a second that each part allows, the least of them, and its part, in words, too.

    ``doubts``: why these figures may be wrong.
    """

    bounds_fps: dict[str, float]
    limit_fps: float
    reached_ratio: float
    cpu_ms: float
    bottleneck: str
    reason: str
    advice: tuple[str, ...]
    doubts: tuple[str, ...]


def verdict(report: Report, config: Config) -> Verdict:
    """Compare what was reached with what the parts allow.

    The limit in frames a second is the least of

    - ``1 / time of a frame`` of decode, preprocess and postprocess, each of which has one
      thread and takes one frame after another; the time is the mean,
    - the rate of the engine alone, with as many contexts as serve it best,
    - ``cores / CPU time of a frame``, the CPU time of all four together: no core can be busy
      twice.

    No order of work on these parts is faster, so it is what a pipeline without any cost of its
    own would reach. Decode is left out where the source has its own pace, as the whole is then
    measured on frames from memory.
    """
    infer = best(report.parts.infer)
    cpu = _cpu(report, infer)
    total = sum(cpu.values())
    bounds = {name: figures.fps for name, figures in _serial(report).items()}
    bounds["infer"] = infer.fps
    bounds[CPU] = report.cores / total * 1e3 if total > 0 else float("inf")
    name = min(bounds, key=lambda key: bounds[key])
    reached = report.offline.fps / bounds[name]
    advice = _advice(name, report, config, bounds, cpu)
    if reached < _GOOD_SHARE and ring_depth(config) < 2 * len(report.parts.infer):
        advice.insert(0, f"ring.depth: {2 * len(report.parts.infer)}")
    return Verdict(
        bounds,
        bounds[name],
        reached,
        total,
        name,
        _reason(name, report, cpu),
        tuple(advice),
        tuple(_doubts(report, reached)),
    )


def _doubts(report: Report, reached: float) -> list[str]:
    doubts = []
    busy = report.elsewhere_cores
    if busy is not None and busy > _FEW * report.cores:
        doubts.append(
            f"other processes kept {busy:.2g} of the {report.cores} cores busy: "
            "with nothing else running the figures are better"
        )
    if reached > _TOO_GOOD:
        doubts.append(
            "the whole was faster than its parts allow, so these were disturbed while they were "
            "measured alone: measure again"
        )
    return doubts


def best(infer: tuple[InferFigures, ...]) -> InferFigures:
    """Figures of the contexts that make the most runs; fewer contexts if within 2 %."""
    found = infer[0]
    for figures in infer[1:]:
        if figures.fps > found.fps * 1.02:
            found = figures
    return found


def _serial(report: Report) -> dict[str, StageFigures]:
    decode = {} if report.paced_by_source else {"decode": report.decode}
    return {
        **decode,
        "preprocess": report.parts.preprocess,
        "postprocess": report.parts.postprocess,
    }


def _cpu(report: Report, infer: InferFigures) -> dict[str, float]:
    """CPU milliseconds of a frame in each part."""
    cpu = {name: figures.cpu_ms for name, figures in _serial(report).items()}
    return {**cpu, "infer": infer.cpu_ms}


def _reason(name: str, report: Report, cpu: dict[str, float]) -> str:
    if name == CPU:
        most = max(cpu, key=lambda key: cpu[key])
        cores = "the one core is" if report.cores == 1 else f"all {report.cores} cores are"
        return (
            f"{cores} busy: {sum(cpu.values()):.3g} ms of CPU a frame, "
            f"{cpu[most]:.3g} of them for {most}"
        )
    if name == "infer":
        infer = best(report.parts.infer)
        busy = "1 context makes" if infer.contexts == 1 else f"{infer.contexts} contexts make"
        rate = infer.fps / report.parts.batch
        return f"the engine's {busy} {shown(rate)} runs a second, {shown(infer.ms.p50)} ms each"
    each = 1e3 / _serial(report)[name].fps
    return f"{name} takes {each:.3g} ms a frame, and frames go through it one by one"


def _advice(
    name: str,
    report: Report,
    config: Config,
    bounds: dict[str, float],
    cpu: dict[str, float],
) -> list[str]:
    if name == CPU:
        most = max(cpu, key=lambda key: cpu[key])
        if most == "infer":
            return [_smaller_input(config), "a quantised (int8) model", _OTHER_DEVICE]
        return _of_stage(most, config)
    if name == "infer":
        return [*_of_contexts(report, config, bounds), _smaller_input(config), _OTHER_DEVICE]
    return _of_stage(name, config)


def _of_contexts(report: Report, config: Config, bounds: dict[str, float]) -> list[str]:
    """Advice on contexts: fewer if they slow each other down, more if more could help."""
    infer = report.parts.infer
    count, found = len(infer), best(infer)
    if found.contexts < count:
        return [f"model.contexts: {found.contexts} (more of them make no more runs)"]
    scales = count == 1 or found.fps > infer[-2].fps * _CLEARLY
    free = 1 - (report.elsewhere_cores or 0.0) / report.cores  # of what cpu allows
    if scales and bounds[CPU] * free > found.fps * _CLEARLY:
        room = "" if ring_depth(config) > count else f" and ring.depth: {2 * count + 2}"
        more = f"model.contexts: {count + 1}{room}, as long as it makes more runs"
        return [f"{more}; auto tries them"]
    return []


def _smaller_input(config: Config) -> str:
    shape = config.model.input_shape
    return f"a smaller model.input_shape than {list(shape)}" if shape else "a smaller model"


def _of_stage(name: str, config: Config) -> list[str]:
    if name == "decode":
        return [
            "a source of fewer pixels or a lighter codec",
            "decoding in hardware (a GStreamer source with an element that does it)",
        ]
    if name == "preprocess":
        faster = {"area": "linear", "linear": "nearest"}.get(config.preprocess.interpolation)
        setting = [] if faster is None else [f"preprocess.interpolation: {faster}"]
        return [*setting, "a source of fewer pixels"]
    settings = config.postprocess
    if isinstance(settings, OwnPostprocessSettings) or settings.kind == "raw":
        return []
    return [
        f"a postprocess.threshold above {settings.threshold:g}",
        f"a postprocess.max_detections below {settings.max_detections}",
    ]
