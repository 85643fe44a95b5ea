"""Configurations from YAML files and mappings: overridden, checked whole, paths made absolute."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from pipeline import locate, problems
from pipeline.backends.settings import ModelSettings
from pipeline.clock import MonotonicClock
from pipeline.errors import ConfigError
from pipeline.problems import Problem
from pipeline.settings import Config, RingSettings
from pipeline.sinks import STANDARD_OUTPUT
from pipeline.yamlfile import Document

__all__ = ["Config", "ModelSettings", "RingSettings", "json_schema", "load", "parse"]

_Model = TypeVar("_Model", bound=BaseModel)


def load(
    path: str | os.PathLike[str],
    overrides: Iterable[str] = (),
    extra_sinks: Sequence[Mapping[str, Any]] = (),
) -> Config:
    """The configuration in a YAML file, checked whole, its paths made absolute.

    ``overrides`` are ``path.to.key=value`` texts whose values are YAML; ``extra_sinks`` come
    after those of the file. Relative paths start at the folder of the file. ConfigError has
    one line for each problem, beginning with the file and the YAML path; a source that is not
    there is a SourceError when nothing else is wrong. No source, model or device is opened.
    """
    document = Document(os.fspath(path))
    document.path = os.path.abspath(path)
    document.read(Path(path))
    for override in overrides:
        document.override(override)
    if document.data is None:
        raise ConfigError(f"{document.name}: empty; at least source and model are needed")
    return _config(document, Path(os.path.abspath(path)).parent, extra_sinks)


def parse(
    mapping: Mapping[str, Any] | Config, base: str | os.PathLike[str] = ".", name: str = ""
) -> Config:
    """The configuration in a mapping of the YAML's shape; see ``load``.

    Relative paths start at ``base``, ``${ENV}`` is expanded in every text, and ``name``, if
    given, begins every message. A ``Config`` that a program built is checked the same way.
    """
    document = Document(name)
    if isinstance(mapping, Config):
        document.data = mapping.model_dump(mode="json", exclude_unset=True)
    else:
        document.take(mapping)
    return _config(document, Path(os.path.abspath(base)), ())


def json_schema() -> dict[str, Any]:
    """JSON Schema of the YAML file, for editors."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return dialect | Config.model_json_schema()


def _config(document: Document, base: Path, extra_sinks: Sequence[Mapping[str, Any]]) -> Config:
    data = document.data
    if not isinstance(data, dict):
        kind = "a list" if isinstance(data, list) else "a single value"
        text = f"needs keys such as source and model at the top, got {kind}"
        raise ConfigError(problems.line(document.name, (), text))
    # A section whose lines are all commented out is a section left out.
    data = {key: value for key, value in data.items() if value is not None}
    sinks = data.get("sinks", [])
    if extra_sinks and isinstance(sinks, list):
        data["sinks"] = [*sinks, *map(dict, extra_sinks)]
    found = _make_absolute(data, base, document)
    config: Config | None = None
    try:
        config = _strictly(Config, data)
    except ValidationError as error:
        found += problems.from_validation(error, Config, data, document.written)
    else:
        found += [*_check_source(config), *_check_options(config, document)]
        config = _with_option_paths(config, base) if not found else config
    unset = {problem.path for problem in document.problems}
    found = document.problems + [problem for problem in found if problem.path not in unset]
    if found or config is None:
        problems.raise_all(document.name, found, document.origins)
    return config


def _strictly(model: type[_Model], data: Mapping[str, Any]) -> _Model:
    # As JSON: strict there still takes a list where the model has a tuple.
    return model.model_validate_json(json.dumps(data), strict=True)


def _check_source(config: Config) -> list[Problem]:
    from pipeline.sources import make_reader  # for OpenCV, where the source needs it

    for name, source in config.sources.items():
        try:
            make_reader(source, MonotonicClock())
        except ConfigError as error:
            text = str(error)  # it begins with the place of the only source
            if config.cameras and text.startswith("source."):
                text = f"cameras.{name}." + text.removeprefix("source.")
            return [Problem((), text)]
    return []


def _check_options(config: Config, document: Document) -> list[Problem]:
    # An engine's module, when it is chosen.
    from pipeline.backends import options_model, unknown_option

    settings = config.model
    above: problems.Place = ("model", "options")
    found: list[Problem] = []
    model = options_model(settings.engine)
    if settings.path is None and not _needs_no_file(settings):
        text = f"missing, but engine {settings.engine} needs a model file"
        found.append(Problem(("model", "path"), text))
    try:
        _strictly(model, settings.options)
    except ValidationError as error:
        unknown = unknown_option(settings.engine)
        found += problems.from_validation(
            error, model, settings.options, document.written, above, unknown
        )
    return found


def _needs_no_file(settings: ModelSettings) -> bool:
    from_cache = settings.engine == "nnrt" and "cache_dir" in settings.options
    return settings.engine == "simulated" or from_cache


def _with_option_paths(config: Config, base: Path) -> Config:
    """Options that the engine declares as a path start at ``base``, too."""
    from pipeline.backends import options_model

    fields = options_model(config.model.engine).model_fields
    options = dict(config.model.options)
    for name, value in options.items():
        declared = fields[name].annotation
        if isinstance(value, str) and Path in (declared, *get_args(declared)):
            options[name] = locate.resolve(value, base)
    return config.model_copy(update={"model": config.model.model_copy(update={"options": options})})


def _make_absolute(data: dict[str, Any], base: Path, document: Document) -> list[Problem]:
    """Resolve every path of ``data`` in place, and look whether what is read is there."""
    found: list[Problem] = []
    if isinstance(data.get("cameras"), dict):
        data["cameras"] = dict(data["cameras"])
    for place, holder, is_source in _read_files(data):
        text = holder[place[-2]][place[-1]]
        if not (isinstance(text, str) and text) or (is_source and not _is_path(text)):
            continue
        try:
            path = locate.resolve(text, base)
            holder[place[-2]] = {**holder[place[-2]], place[-1]: path}
            _look_at(path, is_source)
        except ConfigError as error:
            found.append(Problem(place, str(error), is_source))
    model = data.get("model")
    library = model.get("library") if isinstance(model, dict) else None
    # A name without a folder is searched for by the system's loader.
    if isinstance(library, str) and "/" in library:
        data["model"] = {**data["model"], "library": locate.resolve(library, base)}
    return found + _place_sinks(data, base, document)


def _identity(path: str) -> object:
    """The same for all names of a file: its links, and other ways to write its path."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path) if "\0" not in path else path
    return found.st_dev, found.st_ino


def _read_files(data: dict[str, Any]) -> list[tuple[tuple[str, ...], dict[str, Any], bool]]:
    """Place, the mapping that holds its section, and whether it is a source, of each path read."""
    cameras = data.get("cameras")
    named = cameras if isinstance(cameras, dict) else {}
    places: list[tuple[tuple[str, ...], dict[str, Any], bool]] = [
        (("model", "path"), data, False),
        (("source", "uri"), data, True),
        *((("cameras", str(name), "uri"), named, True) for name in named),
    ]
    return [
        (place, holder, is_source)
        for place, holder, is_source in places
        if isinstance(holder.get(place[-2]), dict) and place[-1] in holder[place[-2]]
    ]


def _is_path(uri: str) -> bool:
    """Whether a source is in the file system, and no device, which is looked at when opened."""
    if uri.startswith((locate.PACKAGE_SCHEME, "file://")):
        return True
    return not (locate.is_url(uri) or uri.startswith(("synthetic:", "gstreamer:", "/dev/")))


def _look_at(path: str, is_source: bool) -> None:
    if not os.path.exists(path):
        raise ConfigError(f"no such file: {path}")
    if not is_source and os.path.isdir(path):
        raise ConfigError(f"is a folder, not a model file: {path}")
    if not os.access(path, os.R_OK):
        raise ConfigError(f"cannot be read, permission denied: {path}")


def _place_sinks(data: dict[str, Any], base: Path, document: Document) -> list[Problem]:
    sinks = data.get("sinks")
    if not isinstance(sinks, list):
        return []
    found = []
    taken = {
        _identity(text): problems.dotted(place)
        for place, holder, _ in _read_files(data)
        if isinstance(text := holder[place[-2]][place[-1]], str)
    }
    if document.path is not None:
        taken[_identity(document.path)] = "the configuration itself"
    sinks = data["sinks"] = list(sinks)
    for i, sink in enumerate(sinks):
        text = sink.get("path") if isinstance(sink, dict) else None
        if not (isinstance(text, str) and text) or text == STANDARD_OUTPUT:
            continue
        place = ("sinks", i, "path")
        try:
            path = locate.resolve(text, base)
        except ConfigError as error:
            found.append(Problem(place, str(error)))
            continue
        sinks[i] = {**sink, "path": path}
        other = taken.setdefault(_identity(path), problems.dotted(place))
        if other != problems.dotted(place) and not path.startswith("/dev/"):
            found.append(Problem(place, f"would overwrite {other}: {path}"))
    return found
