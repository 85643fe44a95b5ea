"""The table of parts: sources, engines, postprocess and sinks by name, loaded when they are used.

Beside those of the table there are the entry points of installed packages, in the groups
``npu_pipeline.sources`` and so on, and any ``package.module:Name``. Nothing named here is
imported before ``load``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from inspect import Parameter, iscoroutinefunction, signature
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, Field, PrivateAttr

from pipeline import problems
from pipeline.errors import ConfigError
from pipeline.problems import Problem

__all__ = [
    "NAMED",
    "OWN",
    "PARTS",
    "Group",
    "OwnPart",
    "OwnProxy",
    "Part",
    "call_optional",
    "is_own",
    "kind_of_settings",
    "listed",
    "load",
    "own_kind_schema",
    "own_kinds",
    "target_of",
]

Group = Literal["sources", "engines", "postprocess", "sinks"]

OWN = "package.module:Name"
"""Name of all kinds that are no built-in ones, in messages about a wrong kind."""

NAMED = r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$"
"""Pattern of ``package.module:Name``."""

PARTS: Mapping[Group, dict[str, str]] = {
    "sources": {
        "camera": "pipeline.sources.camera:CameraReader",
        "file": "pipeline.sources.file:FileReader",
        "gstreamer": "pipeline.sources.gstreamer:GstreamerReader",
        "images": "pipeline.sources.images:ImagesReader",
        "pipe": "pipeline.sources.pipes:pipe_reader",
        "stream": "pipeline.sources.url:url_reader",
        "synthetic": "pipeline.sources.synthetic:SyntheticReader",
    },
    "engines": {
        "mindspore_lite": "pipeline.engines.mindspore_lite",
        "nnrt": "pipeline.engines.nnrt",
        "openvino": "pipeline.engines.openvino",
        "rknn": "pipeline.engines.rknn",
        "simulated": "pipeline.engines.simulated",
    },
    "postprocess": {
        "centerface": "pipeline.postprocess.centerface:CenterFace",
        "raw": "pipeline.postprocess.raw:Raw",
        "yolo_end2end": "pipeline.postprocess.yolo:YoloEnd2End",
        "yolov5": "pipeline.postprocess.yolo:Yolo",
        "yolov8": "pipeline.postprocess.yolo:Yolo",
    },
    "sinks": {
        "console": "pipeline.sinks.console:ConsoleSink",
        "jsonl": "pipeline.sinks.jsonl:JsonlSink",
        "video": "pipeline.sinks.video:VideoSink",
    },
}


class Part(NamedTuple):
    """A part that can be named: its target in Python, and the package that brings it."""

    group: Group
    name: str
    target: str
    origin: str


def listed(group: Group) -> list[Part]:
    """Built-in parts, then those of installed packages. Imports none of them."""
    found = {name: Part(group, name, target, "built in") for name, target in PARTS[group].items()}
    for point in sorted(entry_points(group=f"npu_pipeline.{group}")):
        brings = point.dist
        origin = f"{brings.name} {brings.version}" if brings else "an installed package"
        target = f"{point.module}:{point.attr}" if point.attr else point.module
        found.setdefault(point.name, Part(group, point.name, target, origin))
    return list(found.values())


def target_of(group: Group, kind: str) -> str | None:
    """Target of a part in Python; None where nothing has this name. Imports nothing."""
    if kind in PARTS[group]:
        return PARTS[group][kind]
    if re.fullmatch(NAMED, kind):
        return kind
    return next((part.target for part in listed(group) if part.name == kind), None)


def is_own(group: Group, kind: str) -> bool:
    """True for a part that is not built in, but can be named."""
    return kind not in PARTS[group] and target_of(group, kind) is not None


def kind_of_settings(group: Group, others: str | None = None) -> Callable[[Any], str | None]:
    """Discriminator of settings: ``OWN`` for a part that is not built in.

    For any other it is ``others`` or, where that is None, the kind.
    """

    def kind_of(given: Any) -> str | None:
        first = next(iter(PARTS[group]))  # which says what it needs in place of, say, a number
        kind = given.get("kind") if isinstance(given, dict) else getattr(given, "kind", first)
        if isinstance(kind, str) and is_own(group, kind):
            return OWN
        return others or (None if kind is None else str(kind))

    return kind_of


def own_kinds(group: Group) -> list[str]:
    """Names of the parts that installed packages bring, and ``OWN`` for any other."""
    return [*(part.name for part in listed(group) if part.name not in PARTS[group]), OWN]


def own_kind_schema(group: Group) -> Callable[[dict[str, Any]], None]:
    """JSON Schema of the kinds that are not built in: a pattern, and what is installed."""

    def extend(schema: dict[str, Any]) -> None:
        *installed, _ = own_kinds(group)
        schema.pop("type", None)
        schema["anyOf"] = [
            {"type": "string", "pattern": NAMED},
            *([{"enum": installed}] if installed else []),
        ]

    return extend


def load(group: Group, kind: str) -> Any:
    """Import a part: a class, a function or, for an engine, a module.

    Blocks as long as the import does. ConfigError when the module or the name in it is missing,
    or the import raises.
    """
    target = target_of(group, kind)
    if target is None:
        known = ", ".join(part.name for part in listed(group))
        raise ConfigError(f"unknown name {kind!r}; known: {known}, or package.module:Name")
    module, _, path = target.partition(":")
    part: Any
    if kind in PARTS[group]:
        part = import_module(module)
        return getattr(part, path) if path else part
    try:
        part = import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if f"{module}.".startswith(f"{missing}."):
            raise ConfigError(
                f"there is no module {missing}; is its folder on PYTHONPATH?"
            ) from error
        raise ConfigError(f"{module}: cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{module}: cannot be imported: {type(error).__name__}: {error}"
        ) from error
    for name in filter(None, path.split(".")):
        try:
            part = getattr(part, name)
        except AttributeError:
            guess = problems.nearest(name, vars(part)) if hasattr(part, "__dict__") else None
            hint = f"; did you mean '{guess}'?" if guess else ""
            raise ConfigError(f"module {module} has no {path}{hint}") from None
    return part


def _bound(part: Any, options: Mapping[str, Any]) -> Callable[[], Any]:
    """A call that constructs the part with its options.

    Options are its keyword arguments or, where it has a pydantic model ``Options``, those of
    the model, an instance of which is its one argument. ConfigError naming each wrong option.
    """
    model = getattr(part, "Options", None)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return functools.partial(part, problems.validated(model, dict(options), ("options",)))
    wrong = list(_misfits(part, options))
    if wrong:
        problems.raise_all("", wrong)
    return functools.partial(part, **options)


def _misfits(part: Any, options: Mapping[str, Any]) -> Iterator[Problem]:
    try:
        parameters = signature(part).parameters.values()
    except (TypeError, ValueError):  # one in C may have none
        return
    named = {
        each.name: each.default is Parameter.empty
        for each in parameters
        if each.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    }
    name = getattr(part, "__name__", type(part).__name__)
    if not any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
        for option in options.keys() - named:
            guess = problems.nearest(option, named)
            hint = f"; did you mean '{guess}'?" if guess else ""
            yield Problem(("options", option), f"{name} has no such option{hint}")
    for option, needed in named.items():
        if needed and option not in options:
            yield Problem(("options", option), f"missing, but {name} needs it")


class OwnPart(BaseModel):
    """Settings of a part that is not built in: named, or given as an object.

    ``needed`` and ``optional`` are the methods that it must and may have; none may be async.
    """

    group: ClassVar[Group]
    needed: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[str, ...]]

    kind: str | None
    options: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="Keyword arguments of the class."
    )

    _make: Callable[[], Any] | None = PrivateAttr(default=None)
    _class: Any = PrivateAttr(default=None)
    _given: Any = PrivateAttr(default=None)

    def with_object(self, part: Any) -> Self:
        """Settings for an object of the program. ConfigError when it lacks a method."""
        if isinstance(part, type):
            raise ConfigError(f"{part.__name__} is a class; give an object, as {part.__name__}()")
        self._check(part)
        return self._of_object(part)

    def imported(self) -> Self:
        """Settings whose class is imported, and its options checked. Blocks. ConfigError."""
        assert self.kind is not None
        try:
            part = load(self.group, self.kind)
            if not callable(part):
                raise ConfigError(f"{self.kind} is no class and no function that makes one")
            if isinstance(part, type):
                self._check(part)
        except ConfigError as error:
            error.locate("kind")
            raise
        copy = self.model_copy()
        copy._class, copy._make = part, _bound(part, self.options)
        return copy

    @property
    def given(self) -> Any:
        """The object that the program gave; None for a class that is named."""
        return self._given

    @property
    def ready(self) -> bool:
        """True if ``make`` is known: the class was imported, or there is an object."""
        return self._make is not None

    def make(self) -> Any:
        """Make the part, on its thread. ConfigError when what was made lacks a method."""
        assert self._make is not None, "import it first"
        made = self._make()
        self._check(made)
        return made

    def fact(self, name: str) -> bool:
        """A fact that the class or object states, such as ``needs_image``; False by default."""
        return getattr(self._class or self._given, name, False) is True

    def _of_object(self, part: Any) -> Self:
        copy = self.model_copy()
        copy._given, copy._make = part, lambda: part
        return copy

    def _check(self, part: Any) -> None:
        name = part.__name__ if isinstance(part, type) else type(part).__name__
        for method in self.needed:
            if not callable(getattr(part, method, None)):
                raise ConfigError(f"{name} has no method {method}")
        for method in (*self.needed, *self.optional):
            if iscoroutinefunction(getattr(part, method, None)):
                raise ConfigError(
                    f"{name}.{method} is async, but it is called on a thread of its own: make it "
                    "a plain method, and reach an event loop by call_soon_threadsafe"
                )


class OwnProxy:
    """Makes a part of one's own, and adds the members that it may leave out."""

    def __init__(self, settings: OwnPart) -> None:
        self._make = settings.make
        self._part: Any = None

    def interrupt(self) -> None:
        """Interrupt it; without such a method a call that hangs is abandoned."""
        call_optional(self._part, "interrupt")

    def close(self) -> None:
        """Close it."""
        call_optional(self._part, "close")


def call_optional(part: Any, method: str, *args: Any) -> None:
    """Call a method that a part of one's own may leave out."""
    if (function := getattr(part, method, None)) is not None:
        function(*args)
