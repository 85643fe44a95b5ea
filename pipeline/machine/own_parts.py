"""Parts of one's own: objects that a program gives, and classes that a configuration names."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pipeline import problems
from pipeline.config.settings import Config
from pipeline.engines import engine_module, imported, validated_options
from pipeline.engines.settings import ModelSettings
from pipeline.errors import ClosedError, ConfigError, PipelineError, at, together
from pipeline.parts import OwnPart
from pipeline.postprocess import OwnPostprocessSettings
from pipeline.problems import KeyPath
from pipeline.sinks import OwnSinkSettings
from pipeline.sources import SourceSettings
from pipeline.worker import call_in_thread

__all__ = ["InUse", "import_in_thread", "import_named", "names_own", "with_objects"]

Own = TypeVar("Own", bound=OwnPart)


def with_objects(
    config: Config,
    sources: Mapping[str, Any],
    frames: Any = None,
    postprocess: Any = None,
    sinks: Sequence[Any] = (),
    *,
    live: bool = False,
) -> Config:
    """``config`` with objects in place of sources and of the postprocess, and behind its sinks.

    ``frames`` are those of the only source. ``live``: an async iterable of frames comes at its
    own pace. ConfigError naming the object that does not fit.
    """
    if frames is not None:
        if sources:
            raise ConfigError("give them in sources, as other sources are given", ("frames",))
        if len(config.sources) > 1:
            names = ", ".join(config.sources)
            raise ConfigError(f"they are those of one camera, but there are {names}", ("frames",))
        (only,) = config.sources.items()
        config = _with_source(config, only[0], _source(("frames",), only[1], frames, live))
    for name, part in sources.items():
        path = ("sources", name)
        if name not in config.sources:
            guess = problems.nearest(name, config.sources)
            hint = f"; did you mean {guess!r}?" if guess else ""
            raise ConfigError(f"there is no camera of that name{hint}", path)
        settings = _source(path, config.sources[name], part, live)
        config = _with_source(config, name, settings)
    changes: dict[str, Any] = {}
    if postprocess is not None:
        kind = OwnPostprocessSettings(kind=type(postprocess).__name__)
        changes["postprocess"] = _with_object(("postprocess",), kind, postprocess)
    given = [
        _with_object(("sinks", number), OwnSinkSettings(kind=type(sink).__name__), sink)
        for number, sink in enumerate(sinks, len(config.sinks))
    ]
    return config.model_copy(update={**changes, "sinks": (*config.sinks, *given)})


def names_own(config: Config) -> bool:
    """True if the configuration names a class that was not imported yet."""
    return not imported(config.model.engine) or any(True for _ in _unready(config))


async def import_in_thread(config: Config) -> Config:
    """``import_named``, beside the event loop, if there is anything to import."""
    if not names_own(config):
        return config
    return await call_in_thread("import", functools.partial(import_named, config))


def import_named(config: Config) -> Config:
    """Import the classes that the configuration names, and check their options. Blocks.

    ConfigError with the place of each that cannot be imported or does not fit.
    """
    wrong: list[PipelineError] = []
    changes: dict[str, Any] = {"sinks": list(config.sinks)}
    for path, own in _unready(config):
        try:
            with at(*path):
                ready = own.imported()
        except ConfigError as error:
            wrong += error.errors or (error,)
            continue
        if isinstance(ready, OwnSinkSettings):
            changes["sinks"][path[1]] = ready
        elif isinstance(ready, SourceSettings):
            config = _with_source(config, str(path[-1]), ready)
        else:
            changes["postprocess"] = ready
    if not imported(config.model.engine):
        try:
            with at("model"):
                _import_engine(config.model)
        except ConfigError as error:
            wrong += error.errors or (error,)
    if wrong:
        raise together(wrong)
    return config.model_copy(update={**changes, "sinks": tuple(changes["sinks"])})


def _import_engine(model: ModelSettings) -> None:
    with at("engine"):
        engine_module(model.engine)
    validated_options(model.engine, model.options)


def _unready(
    config: Config,
) -> Iterator[tuple[KeyPath, SourceSettings | OwnPostprocessSettings | OwnSinkSettings]]:
    if config.source is not None and config.source.kind and not config.source.ready:
        yield ("source",), config.source
    for name, camera in config.cameras.items():
        if camera.kind and not camera.ready:
            yield ("cameras", name), camera
    if isinstance(config.postprocess, OwnPostprocessSettings) and not config.postprocess.ready:
        yield ("postprocess",), config.postprocess
    for number, sink in enumerate(config.sinks):
        if isinstance(sink, OwnSinkSettings) and not sink.ready:
            yield ("sinks", number), sink


def _source(path: KeyPath, settings: SourceSettings, part: Any, live: bool) -> SourceSettings:
    changes: dict[str, Any] = {"kind": None}
    if isinstance(part, AsyncIterable):
        changes["live"] = live
    return _with_object(path, settings.model_copy(update=changes), part)


def _with_source(config: Config, name: str, source: SourceSettings) -> Config:
    if config.source is not None:
        return config.model_copy(update={"source": source})
    return config.model_copy(update={"cameras": {**config.cameras, name: source}})


def _with_object(path: KeyPath, settings: Own, part: Any) -> Own:
    with at(*path):
        return settings.with_object(part)


class InUse:
    """Objects in use by a pipeline; ClosedError if another one uses one of them."""

    _all: dict[int, object] = {}  # noqa: RUF012 - shared by all pipelines

    def __init__(self, given: Sequence[object]) -> None:
        self._given = given
        self._taken: dict[int, object] = {}

    def take(self) -> None:
        """Mark them as used."""
        taking: dict[int, object] = {}
        for each in self._given:
            if id(each) in self._all or id(each) in taking:
                user = "another pipeline" if id(each) in self._all else "another part"
                raise ClosedError(f"{type(each).__name__}: {user} uses this object")
            taking[id(each)] = each
        self._all.update(taking)
        self._taken = taking

    def give_back(self) -> None:
        """Let others use them."""
        for key in self._taken:
            self._all.pop(key, None)
        self._taken = {}
