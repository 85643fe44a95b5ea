"""Explanation of a configuration, made without opening anything."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from pipeline.config.settings import Config
from pipeline.engines import engine_module, imported, slot_bytes
from pipeline.machine.wiring import CameraWiring, automatic_depth, build, ring_depth
from pipeline.redact import printable, redact_uri
from pipeline.sinks import STANDARD_OUTPUT
from pipeline.sources import SourceSettings, kind_of
from pipeline.sources.synthetic import synthetic_settings

__all__ = ["describe", "remarks"]

_LATER = "as large as the model says when it is loaded"


def describe(config: Config) -> str:
    """The plan of a run as lines of name and value, secrets hidden.

    Sizes are shown as far as they are known before the source and the model are opened.
    """
    rows = [*_source(config), *_model(config), *_buffers(config), *_sinks(config)]
    rows.append(("drain", f"at most {config.drain_s:g} s when stopped"))
    rows += [("note", remark) for remark in remarks(config)]
    width = max(len(name) for name, _ in rows)
    return printable("\n".join(f"{name:<{width}}  {value}" for name, value in rows))


def remarks(config: Config) -> Iterator[str]:
    """Settings that are valid and probably not meant, each in one line with its place."""
    for number, sink in enumerate(config.sinks):
        if sink.kind == "video" and config.postprocess.kind == "raw":
            yield (f"sinks.{number}: nothing is drawn, as postprocess.kind raw makes no detections")


def _source(config: Config) -> Iterator[tuple[str, str]]:
    wiring = build(config)
    for camera in wiring.cameras:
        source = config.sources[camera.name]
        kind = kind_of(source)
        uri = redact_uri(str(source.uri))
        shown = source.kind or (uri if uri.startswith(kind) else f"{kind} {uri}")
        yield "source", f"{shown} as {camera.name!r}"
        if kind == "own" and source.live is None and not source.ready:
            yield "  plays", "as its class says, which --import shows"
            continue
        pace = "at its own pace" if camera.paced else "as fast as it is taken"
        yield "  plays", f"{pace}, again and again" if source.loop else pace
        origin = "set" if source.overflow else f"default for a source that plays {pace}"
        waiting = _count(camera.queue, "frame")
        yield "  overflow", f"{camera.overflow} ({origin}), at most {waiting} waiting"
        yield "  frame buffers", _frame_buffers(camera, source, wiring.needs_images)
        if camera.supervised:
            yield "  when lost", _supervision(source)


def _supervision(source: SourceSettings) -> str:
    attempts = source.reconnect.attempts
    often = "without limit" if attempts is None else _count(attempts, "time")
    return (
        f"reopened {often}; lost is no frame for {source.read_timeout_s:g} s or the same "
        f"frame for {source.stale_after_s:g} s"
    )


def _model(config: Config) -> Iterator[tuple[str, str]]:
    model = config.model
    yield "model", model.path or "none"
    library = f", library {model.library}" if model.library else ""
    takes_device = imported(model.engine) and engine_module(model.engine).TAKES_DEVICE
    device = f" on {model.device}" if takes_device else ""
    yield "  engine", f"{model.engine}{device}{library}"
    probed = f"auto: measured at the start, for {model.aim}"
    automatic = "auto: 1, for latency" if model.aim == "latency" else probed
    yield "  contexts", automatic if model.contexts == "auto" else str(model.contexts)
    if model.options.get("threads") == "auto":
        yield "  threads", probed
    if model.input_shape:
        yield "  input shape", f"{list(model.input_shape)} (set)"
    preprocess = config.preprocess
    yield "preprocess", f"{preprocess.resize}, {preprocess.color}"
    for name, source in config.sources.items():
        own = config.preprocess_of(source)
        if own != preprocess:
            yield f"  {name}", f"{own.resize}, {own.color}"
    yield "postprocess", config.postprocess.kind


def _buffers(config: Config) -> Iterator[tuple[str, str]]:
    depth = ring_depth(config)
    model = config.model
    open_number = model.contexts == "auto" and model.aim == "throughput"
    if open_number and automatic_depth(config):
        yield "ring", f"auto: {_count(depth, 'slot')}, or more by the number of contexts"
    else:
        yield "ring", _count(depth, "slot")
    for name, each in zip(("inputs", "outputs"), _tensor_bytes(config), strict=True):
        known = f"{_total(each, depth)} of driver memory" if each is not None else _LATER
        yield f"  {name}", known


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _total(each: int, count: int) -> str:
    return f"{each:,} bytes x {count} = {each * count:,} bytes"


def _tensor_bytes(config: Config) -> tuple[int | None, int | None]:
    """Bytes of inputs and of outputs in one slot, each where it is known already.

    An image input takes one byte for each value, whatever the model itself declares.
    """
    shape = config.model.input_shape
    return slot_bytes(config.model) or (prod(shape) if shape else None, None)


def _frame_buffers(camera: CameraWiring, source: SourceSettings, as_bgr: bool) -> str:
    count, kind = camera.buffers, kind_of(source)
    if kind in ("file", "stream") and source.pixels == "auto" and not as_bgr:
        return (
            f"{count}, each of the source's own size: planes where its frames are 4:2:0, "
            "1.5 bytes a pixel, else BGR, 3 bytes a pixel"
        )
    if kind == "synthetic":
        source = synthetic_settings(source)
    width, height = source.width, source.height
    if width and height:
        return f"{count} of {width}x{height} BGR, {_total(width * height * 3, count)}"
    return f"{count} BGR, each of the source's own size, 3 bytes a pixel"


def _sinks(config: Config) -> Iterator[tuple[str, str]]:
    if not config.sinks:
        yield "sinks", "none"
    for number, (sink, wired) in enumerate(zip(config.sinks, build(config).sinks, strict=True)):
        path = getattr(sink, "path", None)
        origin = "set" if sink.overflow else "default for this overflow"
        path = "to standard output" if path == STANDARD_OUTPUT else path
        target = f"{sink.kind} {path}" if path else sink.kind
        waiting = _count(sink.queue, "result")
        yield (
            f"sinks.{number}",
            f"{target}, {wired.overflow} ({origin}), at most {waiting} waiting",
        )
