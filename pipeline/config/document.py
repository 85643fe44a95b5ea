"""YAML text and overrides as plain data; the only file that knows YAML."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline import paths
from pipeline.errors import ConfigError, dotted
from pipeline.problems import KeyPath, Problem
from pipeline.redact import redact_uri

__all__ = ["Document"]

_log = logging.getLogger(__name__)

_MAX_BYTES = 1 << 20
_MAX_VALUES = 10_000  # what an alias in YAML makes is counted each time it is used
_MAX_DEPTH = 32
_MAX_INDEX = 64
_MAX_TEXT = 8192  # characters of one text
_NAMED = re.compile(r"\.(?=inf|nan)")

# ${...} is taken out before YAML is read, since in {a: ${B}} the brace would end the mapping.
# What stands for it are characters that no alphabet has. One that does not end takes the whole
# line, so that no part of the line is looked at twice.
_REFERENCE = re.compile(r"\$?\$\{[^}\n]*\}?")
_STAND_IN = re.compile("\ue000([0-9]{1,7})\ue001")

# One part of --set's path; quotes keep a name whole that has dots.
_PART = re.compile(r"\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<plain>[^.]*)")
_FORBIDDEN = re.compile("[\0\ud800-\udfff]")


_TOO_MANY = f"has more than {_MAX_VALUES} values"
_TOO_DEEP = "nested too deeply"


class _LimitError(Exception):
    """More than any configuration needs."""


class _Loader(yaml.SafeLoader):
    """YAML 1.2's core schema: `on`, `yes`, `010` and `1:30` are text, `1e-3` is a number."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def __init__(self, text: str, starts: dict[KeyPath, yaml.Mark]) -> None:
        super().__init__(text)
        self.starts = starts  # gets where each value begins
        self._nodes = self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """One node and what is in it, as long as there are not too many."""
        self._nodes += 1
        if self._nodes > 2 * _MAX_VALUES:  # keys are nodes, too
            raise _LimitError(_TOO_MANY)
        if self._depth > _MAX_DEPTH:
            raise _LimitError(_TOO_DEEP)
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


for _tag, _first, _pattern in (
    ("null", ["~", "n", "N", ""], r"(?:~|null|Null|NULL|)$"),
    ("bool", list("tTfF"), r"(?:true|True|TRUE|false|False|FALSE)$"),
    ("int", list("-+0123456789"), r"(?:[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+)$"),
    (
        "float",
        list("-+0123456789."),
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
    ),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


class Document:
    """The plain data of one configuration, and where each value of it came from.

    ``written`` has texts as the user wrote them, before the environment was put in;
    ``texts`` what to take where text is wanted and YAML made something else of it;
    ``overridden`` the values of ``--set``; ``problems`` what was wrong but did not stop the
    reading. ``name`` begins the message of every ConfigError.
    Keys at the top that begin with ``x-`` are not read: they hold what aliases repeat.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.path: str | None = None  # of the file, where there is one
        self.data: Any = None
        self.written: dict[KeyPath, str] = {}
        self.texts: dict[KeyPath, str] = {}
        self.overridden: list[KeyPath] = []
        self.problems: list[Problem] = []
        self._left = _MAX_VALUES
        self._references: list[str] = []
        self._file = ""  # without the references
        self._marks: dict[KeyPath, yaml.Mark] = {}  # of the values that stand in it

    def read(self, file: Path) -> None:
        """Take the data of a YAML file."""
        self._file = _REFERENCE.sub(self._take_out, self._text_of(file))
        self.data = self._parse(self._file, (), self._marks)

    def take(self, mapping: Mapping[str, Any]) -> None:
        """Take data that a program gives."""
        self.data = self._plain(mapping, ())

    def override(self, text: str) -> None:
        """Set one value from ``path.to.key=value``, whose value is YAML.

        A name with dots is found whole where it is there already, and may be quoted.
        """
        dotted, equals, value = text.partition("=")
        dotted = dotted.strip()
        path = self._find(dotted) if equals else ()
        if not path:
            shown = redact_uri(text[:80])
            raise ConfigError(f"--set {shown}: write it as path.to.key=value")
        file, self.name = self.name, f"--set {dotted}"
        try:
            self._forget(path)
            self.data = self._with(self.data, path, 0, self._given(value, path))
        finally:
            self.name = file
        self.overridden.append(path)

    def rename(self, old: KeyPath, key: str) -> None:
        """Take the value at ``old`` as that of ``key`` beside it; both together are a problem."""
        holder = self.data
        for part in old[:-1]:
            holder = _inside(holder, part)
        if not isinstance(holder, dict) or old[-1] not in holder:
            return
        new = (*old[:-1], key)
        if key in holder:
            text = f"is the old name of {dotted(new)}, which is set, too"
            self.problems.append(Problem(old, text))
        else:
            renamed_to = ConfigError(f"is now {key}", old, file=self.name)
            _log.warning("%s; the next release does not know the old name", renamed_to)
            for texts in (self.written, self.texts):
                if old in texts:
                    texts[new] = texts[old]
            if old in self._marks:
                self._marks[new] = self._marks[old]
            self.overridden += [new] * (old in self.overridden)
        renamed = {key if name == old[-1] else name: value for name, value in holder.items()}
        self.data = self._with(self.data, old[:-1], 0, renamed)

    def origin_of(self, path: KeyPath) -> str:
        """The remark where a value came from, for the end of a message."""
        for other in self.overridden:
            shorter = min(len(other), len(path))
            if shorter and other[:shorter] == path[:shorter]:
                return " (from --set)"
        known = (self._marks.get(path[:end]) for end in range(len(path), 0, -1))
        mark = next((mark for mark in known if mark is not None), None)
        if mark is None:
            return ""
        before = self._put_back(self._file[mark.index - mark.column : mark.index])
        return f" (line {mark.line + 1}, column {len(before) + 1})"

    def _find(self, dotted: str) -> KeyPath:
        """The place that a path names in the data, () for what is no path."""
        path: list[str | int] = []
        data, rest = self.data, f".{dotted}"
        while rest.startswith(".") and len(path) < _MAX_DEPTH:
            rest = rest[1:]
            keys = [key for key in data if _begins(rest, key)] if isinstance(data, dict) else []
            part: str | int = max(keys, key=len, default="")
            if part:
                rest = rest[len(str(part)) :]
            elif found := _PART.match(rest):
                part, rest = found[found.lastgroup or 0], rest[found.end() :]
                if found.lastgroup == "plain" and _is_index(part, data):
                    part = int(part)
            if part == "":
                return ()
            path.append(part)
            data = _inside(data, part)
        return () if rest else tuple(path)

    def _given(self, value: str, path: KeyPath) -> Any:
        text = value.strip()
        plain = text[:1] not in tuple("[{\"'&*!|>%@`")
        try:
            parsed = self._parse(_REFERENCE.sub(self._take_out, value), path, {})
        except ConfigError:
            if not (plain and ":" in text):
                raise
            return self._text(text, path)  # no YAML, as in a: b: c, but text all the same
        if plain and text and not isinstance(parsed, str):
            self.written[path] = text
            self.texts[path] = self._expand(text, path)
        return parsed

    def _forget(self, path: KeyPath) -> None:
        """Drop what was noted of a value that is replaced."""

        def below(other: KeyPath) -> bool:
            return other[: len(path)] == path

        self.problems = [item for item in self.problems if not below(item.path)]
        self.written = {key: text for key, text in self.written.items() if not below(key)}
        self.texts = {key: text for key, text in self.texts.items() if not below(key)}
        self._marks = {key: mark for key, mark in self._marks.items() if not below(key)}

    def _with(self, data: Any, path: KeyPath, at: int, value: Any) -> Any:
        """``data`` with ``value`` at ``place``; sections on the way are made."""
        if at == len(path):
            return value
        part = path[at]
        if data is None:
            data = [] if isinstance(part, int) else {}
        if isinstance(data, dict):
            inner = self._with(data.get(str(part)), path, at + 1, value)
            return {**data, str(part): inner}
        if not isinstance(data, list):
            raise self._error(path[:at], "is a single value")
        if not isinstance(part, int) or part > min(len(data), _MAX_INDEX):
            has = f"has {len(data)} entries, counted from 0"
            raise self._error(path[:at], has)
        inner = self._with(data[part] if part < len(data) else None, path, at + 1, value)
        return [*data[:part], inner, *data[part + 1 :]]

    def _text_of(self, file: Path) -> str:
        if os.path.isdir(file):
            raise self._error((), "is a folder, not a configuration file")
        try:
            with file.open("rb") as stream:
                data = stream.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            raise self._error((), "no such file") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise self._error((), f"cannot be read: {reason}") from None
        if len(data) > _MAX_BYTES:
            raise self._error((), f"larger than {_MAX_BYTES} bytes")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            text = f"line {line}: not UTF-8 text (byte 0x{data[error.start]:02x})"
            raise self._error((), text) from None

    def _parse(self, text: str, path: KeyPath, starts: dict[KeyPath, yaml.Mark]) -> Any:
        try:
            loader = _Loader(text, starts)
            node = loader.get_single_node()
            return None if node is None else self._construct(loader, node, path)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
            reason = error.problem or "unreadable"
            if error.context and reason.startswith("but "):
                reason = f"{error.context}, {reason}"
            if "mapping values" in reason or reason.endswith("got ':'"):
                reason += "; text with a colon before a blank or at its end needs quotes"
            raise self._error((), f"{where}not YAML: {reason}") from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            # The declared type of `character` is wrong for text, where it is the code point.
            shown = f"character U+{int(error.character):04X} is not allowed"
            raise self._error((), f"line {line}: not YAML: {shown}") from None
        except _LimitError as error:
            raise self._error((), str(error)) from None
        except RecursionError:
            raise self._error((), _TOO_DEEP) from None

    def _take_out(self, match: re.Match[str]) -> str:
        self._references.append(match[0])
        return f"\ue000{len(self._references) - 1}\ue001"

    def _put_back(self, text: str) -> str:
        def original(match: re.Match[str]) -> str:
            number = int(match[1])
            return self._references[number] if number < len(self._references) else match[0]

        return _STAND_IN.sub(original, text)

    def _construct(self, loader: _Loader, node: yaml.Node, path: KeyPath) -> Any:
        self._count(path)
        loader.starts[path] = node.start_mark
        if isinstance(node, yaml.MappingNode):
            return self._mapping(loader, node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._construct(loader, part, (*path, i)) for i, part in enumerate(node.value)]
        tag, text = node.tag, self._put_back(str(node.value))
        expanded = self._text(text, path)
        if expanded != text and isinstance(node, yaml.ScalarNode) and node.style is None:
            # What stands unquoted in the file has the type of what the environment put there.
            tag = loader.resolve(yaml.ScalarNode, expanded, (True, False))  # type: ignore[no-untyped-call]
        value = self._scalar(tag, expanded, path, node.start_mark.line + 1)
        if value is not None and not isinstance(value, str):
            self.texts[path] = expanded
        return value

    def _scalar(self, tag: str, text: str, path: KeyPath, line: int) -> Any:
        match tag.removeprefix("tag:yaml.org,2002:"):
            case "null":
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "int" | "float" as kind:
                try:
                    return int(text, 0) if kind == "int" else float(_NAMED.sub("", text.lower()))
                except ValueError:
                    raise self._error(path, f"line {line}: not a number") from None
            case "str":
                return text
        raise self._error(path, f"line {line}: the tag {tag} is not allowed here")

    def _mapping(self, loader: _Loader, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        return {
            key: self._construct(loader, value, (*path, key))
            for key, value in self._entries(node, path).items()
            if path or not key.startswith("x-")
        }

    def _entries(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, yaml.Node]:
        """The value of each key: of the mapping's own, then of those that ``<<`` merges."""
        lines: dict[str, int] = {}
        entries: dict[str, yaml.Node] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error(path, f"line {line}: a key must be a plain word")
            key = self._put_back(str(key_node.value))
            self._check_key(key, path)
            if key in lines:
                text = f"given twice, on line {lines[key]} and on line {line}"
                raise self._error((*path, key), text)
            lines[key] = line
            if key == "<<" and key_node.style is None:
                listed = isinstance(value_node, yaml.SequenceNode)
                merged += value_node.value if listed else [value_node]
            else:
                entries[key] = value_node
        for other in merged:
            self._count(path)
            if not isinstance(other, yaml.MappingNode):
                line = other.start_mark.line + 1
                raise self._error((*path, "<<"), f"line {line}: needs a mapping (key: value)")
            entries = self._entries(other, path) | entries
        return entries

    def _plain(self, value: Any, path: KeyPath) -> Any:
        self._count(path)
        if isinstance(value, Mapping):
            entries = {str(key): part for key, part in value.items()}
            for key in entries:
                self._check_key(key, path)
            return {
                key: self._plain(part, (*path, key))
                for key, part in entries.items()
                if path or not key.startswith("x-")
            }
        if isinstance(value, list | tuple):
            return [self._plain(part, (*path, i)) for i, part in enumerate(value)]
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, str):
            return self._text(value, path)
        if value is None or isinstance(value, bool | int | float):
            return value
        raise self._error(path, f"needs plain data, got {type(value).__name__}")

    def _text(self, text: str, path: KeyPath) -> str:
        """The text with the environment put in."""
        self.written[path] = text
        return self._expand(text, path)

    def _expand(self, text: str, path: KeyPath) -> str:
        """The text with the environment put in; empty where it cannot be used at all."""
        problem = _unusable(text)
        try:
            text = text if problem else paths.expand_env(text)
            problem = problem or _unusable(text)
        except ConfigError as error:
            problem = error.message
        if problem is None:
            return text
        if all(noted.path != path for noted in self.problems):
            self.problems.append(Problem(path, problem))
        return ""

    def _check_key(self, key: str, path: KeyPath) -> None:
        if problem := _unusable(key):
            raise self._error((*path, key[:40]), problem)

    def _count(self, path: KeyPath) -> None:
        self._left -= 1
        if self._left < 0:
            raise self._error((), _TOO_MANY)
        if len(path) > _MAX_DEPTH:
            raise self._error((), _TOO_DEEP)

    def _error(self, path: KeyPath, text: str) -> ConfigError:
        return ConfigError(text, path, file=self.name)


def _unusable(text: str) -> str | None:
    """The reason why no setting can be this text, or None."""
    if len(text) > _MAX_TEXT:
        return f"has {len(text)} characters, more than {_MAX_TEXT}"
    if found := _FORBIDDEN.search(text):
        return f"has the character U+{ord(found[0]):04X}, which no text here may have"
    return None


def _begins(dotted: str, key: str) -> bool:
    return dotted == key or dotted.startswith(f"{key}.")


def _is_index(part: str, data: Any) -> bool:
    return part.isdecimal() and len(part) < 7 and not isinstance(data, dict)


def _inside(data: Any, part: str | int) -> Any:
    if isinstance(data, dict):
        return data.get(part)
    inside = isinstance(data, list) and isinstance(part, int) and part < len(data)
    return data[part] if inside else None
