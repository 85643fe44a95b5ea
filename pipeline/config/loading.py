"""Configurations from YAML files and mappings: overridden, checked whole, paths made absolute."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from pipeline import paths, problems
from pipeline.clock import MonotonicClock
from pipeline.config.document import Document
from pipeline.config.files_in_use import Files
from pipeline.config.schema import json_schema
from pipeline.config.settings import Cameras, CameraSettings, Config, RingSettings
from pipeline.engines.settings import ModelSettings
from pipeline.errors import ConfigError, dotted
from pipeline.problems import Problem
from pipeline.sinks import STANDARD_OUTPUT
from pipeline.sources.settings import SourceSettings

__all__ = [
    "Config",
    "ModelSettings",
    "RingSettings",
    "json_schema",
    "load",
    "parse",
    "parse_source",
    "refuse_overwriting",
]

_Model = TypeVar("_Model", bound=BaseModel)


def load(
    path: str | os.PathLike[str],
    overrides: Iterable[str] = (),
    extra_sinks: Sequence[Mapping[str, Any]] = (),
    *,
    given: Sequence[str] | None = (),
) -> Config:
    """The configuration in a YAML file, checked whole, its paths made absolute.

    ``overrides`` are ``path.to.key=value`` texts whose values are YAML; ``extra_sinks`` come
    after those of the file. Relative paths start at the folder of the file. ConfigError has
    one line for each problem, beginning with the file and the YAML path; a source that is not
    there is a SourceError when nothing else is wrong. No source, model or device is opened.
    ``given``: cameras whose frames the program gives, so that no source need be named; None:
    those of the only one.
    """
    document = Document(os.fspath(path))
    document.path = os.path.abspath(path)
    document.read(Path(path))
    for override in overrides:
        document.override(override)
    if isinstance(document.data, dict):
        _stand_in(document.data, given)
    if document.data is None and not document.problems:
        raise ConfigError("empty; at least source and model are needed", file=document.name)
    return _config(document, Path(os.path.abspath(path)).parent, extra_sinks)


def parse(
    mapping: Mapping[str, Any] | Config,
    base: str | os.PathLike[str] = ".",
    name: str = "",
    *,
    given: Sequence[str] | None = (),
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
    _stand_in(document.data, given)
    return _config(document, Path(os.path.abspath(base)), ())


def parse_source(
    mapping: Mapping[str, Any], base: str | os.PathLike[str] = ".", name: str = "camera"
) -> CameraSettings:
    """The settings of one camera, as the YAML has them under ``cameras``; see ``parse``."""
    document = Document("")
    document.take({"cameras": {name: mapping}})
    cameras, found = _validated(Cameras, document, Path(os.path.abspath(base)))
    if cameras is not None:
        found += _check_sources(cameras.cameras)
    return _without(found, cameras, document).cameras[name]


def _stand_in(data: dict[str, Any], given: Sequence[str] | None) -> None:
    """Put a source that is always there in place of those that the program gives."""
    if given == ():
        return
    if data.get("cameras") is None and data.get("source") is None:
        data |= {"source": {}} if given is None else {"cameras": {name: {} for name in given}}
    sources = data.get("cameras")
    sources = dict(sources) if isinstance(sources, dict) else {}
    if isinstance(source := data.get("source"), dict):
        sources[source.get("name", "camera")] = source
    for name, source in sources.items():
        if isinstance(source, dict) and (given is None or name in given):
            source["uri"] = "synthetic:"
            source.pop("kind", None)
            source.pop("options", None)


def _config(document: Document, base: Path, extra_sinks: Sequence[Mapping[str, Any]]) -> Config:
    data = document.data
    if not isinstance(data, dict):
        if document.problems:
            problems.raise_all(document.name, document.problems, document.origin_of)
        kind = "a list" if isinstance(data, list) else "a single value"
        text = f"needs keys such as source and model at the top, got {kind}"
        raise ConfigError(text, file=document.name)
    # A section whose lines are all commented out is a section left out.
    document.data = {key: value for key, value in data.items() if value is not None}
    sinks = document.data.get("sinks", [])
    if extra_sinks and isinstance(sinks, list):
        document.data["sinks"] = [*sinks, *map(dict, extra_sinks)]
    _rename_old_keys(document)
    config, found = _validated(Config, document, base)
    if config is not None:
        found += [*_check_sources(config.sources), *_check_options(config, document)]
        found += _check_targets(config, document.path)
        if not found:
            config, found = _with_option_paths(config, base)
    return _without(found, config, document)


def _rename_old_keys(document: Document) -> None:
    """Names of the release before, taken with a note."""
    document.rename(("drain_seconds",), "drain_s")
    sinks = document.data.get("sinks")
    for number in range(len(sinks) if isinstance(sinks, list) else 0):
        document.rename(("sinks", number, "policy"), "overflow")


def _validated(
    model: type[_Model], document: Document, base: Path
) -> tuple[_Model | None, list[Problem]]:
    """The model of the document's data, its paths made absolute, and what is wrong with it."""
    data = document.data
    _take_texts(model, data, document)
    found = _make_absolute(data, base)
    try:
        return _strictly(model, data), found
    except ValidationError as error:
        return None, found + problems.from_validation(error, model, data, document.written)


def _without(found: list[Problem], model: _Model | None, document: Document) -> _Model:
    """The model if nothing was found to be wrong; else all of it is raised."""
    unset = {problem.path for problem in document.problems}
    found = document.problems + [problem for problem in found if problem.path not in unset]
    if found or model is None:
        problems.raise_all(document.name, found, document.origin_of)
    return model


def _strictly(model: type[_Model], data: Mapping[str, Any]) -> _Model:
    # As JSON: strict there still takes a list where the model has a tuple.
    return model.model_validate_json(json.dumps(data), strict=True)


def _take_texts(
    model: type[BaseModel], data: dict[str, Any], document: Document, above: problems.KeyPath = ()
) -> None:
    """Put in what was written where text is wanted and YAML made something else of it."""
    try:
        _strictly(model, data)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            key_path = problems.path_of(details, data)
            text = document.texts.get((*above, *key_path))
            wanted = details["type"] == "string_type" or (
                details["type"] == "uri" and isinstance(details["input"], (dict, list))
            )
            if wanted and text is not None:
                _put(data, key_path, text)


def _put(data: Any, key_path: problems.KeyPath, value: Any) -> None:
    """Set the value at ``place``; what leads there is copied, as aliases may share it."""
    for part in key_path[:-1]:
        data[part] = data[part].copy()
        data = data[part]
    data[key_path[-1]] = value


def _check_sources(sources: Mapping[str, SourceSettings]) -> list[Problem]:
    from pipeline.sources import make_reader  # for OpenCV, where the source needs it

    for name, source in sources.items():
        try:
            make_reader(source, MonotonicClock())
        except ConfigError as error:
            above = ("cameras", name) if isinstance(source, CameraSettings) else ("source",)
            return [Problem((*above, *error.path), error.message)]
    return []


def _check_targets(config: Config, path: str | None) -> list[Problem]:
    files = Files()
    found = []
    for user, each in _read_by(config, path):
        files.read(each, user)
    for i, sink in enumerate(config.sinks):
        key_path: problems.KeyPath = ("sinks", i, "path")
        target = getattr(sink, "path", STANDARD_OUTPUT)
        if target != STANDARD_OUTPUT and (other := files.write(target, dotted(key_path))):
            found.append(Problem(key_path, f"would overwrite {other}: {target}"))
    return found


def refuse_overwriting(config: Config, path: str, option: str, target: str) -> None:
    """ConfigError when what ``option`` writes is what a run of the configuration uses."""
    targets = [written for sink in config.sinks if (written := getattr(sink, "path", None))]
    if target == STANDARD_OUTPUT:
        if option == "--summary" and STANDARD_OUTPUT in targets:
            raise ConfigError(f"{option} -: standard output is taken by JSON Lines")
        return
    files = Files()
    for user, each in _read_by(config, path):
        files.read(each, user)
    for written in targets:
        if written != STANDARD_OUTPUT:
            files.write(written, written)
    if other := files.write(target, option):
        raise ConfigError(f"{option} {target}: would overwrite {other}")


def _read_by(config: Config, path: str | None) -> Iterator[tuple[str, str]]:
    """Key path and path of each file or folder that is read."""
    if path is not None:
        yield "the configuration itself", path
    if config.model.path is not None:
        yield "model.path", config.model.path
    if config.source is not None and isinstance(config.source.uri, str):
        yield "source.uri", config.source.uri
    for name, camera in config.cameras.items():
        if isinstance(camera.uri, str):
            yield f"cameras.{name}.uri", camera.uri


def _check_options(config: Config, document: Document) -> list[Problem]:
    # An engine's module, when it is chosen.
    from pipeline.engines import engine_module, imported, slot_bytes, unknown_option

    settings = config.model
    if not imported(settings.engine):
        return []  # nothing that is named is imported here
    try:
        module = engine_module(settings.engine)
    except ConfigError as error:
        return [Problem(("model", "engine"), error.message)]
    above: problems.KeyPath = ("model", "options")
    found: list[Problem] = []
    model = module.OPTIONS
    if settings.path is None and module.needs_file(settings.options):
        text = f"missing, but engine {settings.engine} needs a model file"
        found.append(Problem(("model", "path"), text))
    _take_texts(model, settings.options, document, above)
    try:
        _strictly(model, settings.options)
    except ValidationError as error:
        unknown = unknown_option(settings.engine)
        found += problems.from_validation(
            error, model, settings.options, document.written, above, unknown
        )
    if not found and (memory := getattr(module, "MEMORY", None)) is not None:
        depth = settings.context_count() if config.ring.depth == "auto" else config.ring.depth
        needed = depth * sum(slot_bytes(settings) or ())
        if needed > memory:
            text = f"{depth} slots need {needed} bytes of driver memory, more than {memory}"
            found.append(Problem(("ring", "depth"), text))
    return found


def _with_option_paths(config: Config, base: Path) -> tuple[Config, list[Problem]]:
    """Options that the engine declares as a path start at ``base``, too."""
    from pipeline.engines import engine_module, imported

    if not imported(config.model.engine):
        return config, []
    fields = engine_module(config.model.engine).OPTIONS.model_fields
    options = dict(config.model.options)
    found: list[Problem] = []
    for name, value in options.items():
        declared = fields[name].annotation
        if isinstance(value, str) and Path in (declared, *get_args(declared)):
            try:
                options[name] = paths.resolve(value, base)
            except ConfigError as error:
                found.append(Problem(("model", "options", name), error.message))
    model = config.model.model_copy(update={"options": options})
    return config.model_copy(update={"model": model}), found


def _make_absolute(data: dict[str, Any], base: Path) -> list[Problem]:
    """Resolve every path of ``data`` in place, and look whether what is read is there."""
    found: list[Problem] = []
    if isinstance(data.get("cameras"), dict):
        data["cameras"] = dict(data["cameras"])
    for key_path, holder, is_source in _read_files(data):
        text = holder[key_path[-2]][key_path[-1]]
        if not (isinstance(text, str) and text) or (is_source and not _is_path(text)):
            continue
        try:
            path = paths.resolve(text, base)
            holder[key_path[-2]] = {**holder[key_path[-2]], key_path[-1]: path}
            _check_readable(path, is_source, text)
        except ConfigError as error:
            missing = is_source and isinstance(error, paths.MissingFileError)
            found.append(Problem(key_path, error.message, missing))
    model = data.get("model")
    library = model.get("library") if isinstance(model, dict) else None
    # A name without a folder is searched for by the system's loader.
    if isinstance(library, str) and "/" in library:
        try:
            data["model"] = {**data["model"], "library": paths.resolve(library, base)}
        except ConfigError as error:
            found.append(Problem(("model", "library"), error.message))
    return found + _resolve_sink_paths(data, base)


def _read_files(data: dict[str, Any]) -> list[tuple[tuple[str, ...], dict[str, Any], bool]]:
    """Key path of each path read, the mapping that holds it, and whether it is a source."""
    cameras = data.get("cameras")
    named = cameras if isinstance(cameras, dict) else {}
    key_paths: list[tuple[tuple[str, ...], dict[str, Any], bool]] = [
        (("model", "path"), data, False),
        (("source", "uri"), data, True),
        *((("cameras", str(name), "uri"), named, True) for name in named),
    ]
    return [
        (key_path, holder, is_source)
        for key_path, holder, is_source in key_paths
        if isinstance(holder.get(key_path[-2]), dict) and key_path[-1] in holder[key_path[-2]]
    ]


def _is_path(uri: str) -> bool:
    """True if a source is a file or folder; devices are checked when they are opened."""
    if uri.startswith((paths.PACKAGE_SCHEME, "file://")):
        return True
    return not (
        paths.is_url(uri)
        or uri.startswith(("synthetic:", "gstreamer:", "pipe:", "/dev/"))
        or uri == "-"
    )


# A URI whose scheme is missing or misspelt is no file, and may hold a password.
_LIKE_A_URI = re.compile(r"[@?=&]|//|^\w+:")


def _check_readable(path: str, is_source: bool, text: str) -> None:
    if not os.path.exists(path):
        if is_source and _LIKE_A_URI.search(text) and not paths.is_url(text):
            raise paths.MissingFileError("no such file; a URI begins with a scheme, as rtsp://")
        raise paths.MissingFileError(f"no such file: {path}")
    if not is_source and os.path.isdir(path):
        raise ConfigError(f"is a folder, not a model file: {path}")
    if not os.access(path, os.R_OK):
        raise paths.MissingFileError(f"cannot be read, permission denied: {path}")


def _resolve_sink_paths(data: dict[str, Any], base: Path) -> list[Problem]:
    sinks = data.get("sinks")
    if not isinstance(sinks, list):
        return []
    found = []
    sinks = data["sinks"] = list(sinks)
    for i, sink in enumerate(sinks):
        text = sink.get("path") if isinstance(sink, dict) else None
        if not (isinstance(text, str) and text) or text == STANDARD_OUTPUT:
            continue
        key_path = ("sinks", i, "path")
        try:
            path = paths.resolve(text, base)
        except ConfigError as error:
            found.append(Problem(key_path, error.message))
            continue
        sinks[i] = {**sink, "path": path}
    return found


load.__module__ = "pipeline"  # so that pickles survive moves
