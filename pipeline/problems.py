"""Problems of a configuration, in words of the YAML and with their key path."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pipeline.errors import ConfigError, PipelineError, SourceError, together
from pipeline.redact import printable, redact_uri

__all__ = [
    "KeyPath",
    "Problem",
    "from_validation",
    "nearest",
    "path_of",
    "raise_all",
    "validated",
]

_Model = TypeVar("_Model", bound=BaseModel)

KeyPath = tuple[str | int, ...]
"""Keys and list indices from the top of the file to a value."""

_NEEDS = {
    "bool_type": "true or false",
    "dict_type": "a mapping (key: value)",
    "float_type": "a number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a mapping (key: value)",
    "none_required": "nothing",
    "string_type": "text",
    "tuple_type": "a list",
}
_MUST = {
    "finite_number": "must be a finite number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_parsing_size": "must be a smaller number",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
}
_MAX_LINES = 20
_MAX_TEXT = 500
_WHOLE = ("camera_mean", "one_source", "ring_depth", "value_error")  # of several values at once
_MISSING = "missing, but it is needed"


class Problem(NamedTuple):
    """One thing that is wrong; ``source`` marks those that are about the source, not the file."""

    path: KeyPath
    text: str
    source: bool = False


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, or None."""
    folded = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def raise_all(
    name: str, problems: Sequence[Problem], origin_of: Callable[[KeyPath], str] = lambda path: ""
) -> NoReturn:
    """Raise the error of a problem, or one that holds those of several.

    It is a SourceError when all are about the source, else a ConfigError that begins with
    those that are not. ``name`` is that of the file; ``origin_of`` gives a remark where the
    value at a path came from.
    """
    errors: list[PipelineError] = []
    for problem in sorted(problems, key=lambda problem: problem.source)[:_MAX_LINES]:
        text = problem.text if len(problem.text) <= _MAX_TEXT else f"{problem.text[:_MAX_TEXT]}..."
        text = printable(text + origin_of(problem.path)).replace("\n", "\\n")
        kind = SourceError if problem.source else ConfigError
        errors.append(kind(text, problem.path, file=name))
    if len(problems) > _MAX_LINES:
        errors.append(kind(f"and {len(problems) - _MAX_LINES} more", file=name))
    raise together(errors)


def from_validation(
    error: ValidationError,
    model: type[BaseModel],
    data: Any,
    written: Mapping[KeyPath, str],
    above: KeyPath = (),
    unknown: str = "unknown key",
) -> list[Problem]:
    """The problems that pydantic found in ``data``, the value at the path ``above``.

    ``written`` has the text of values as the user wrote them, so that nothing which came out
    of the environment is shown. ``unknown`` is what is said of a key that there is not.
    """
    grouped: dict[KeyPath, list[ErrorDetails]] = {}
    for details in error.errors(include_url=False):
        grouped.setdefault(path_of(details, data), []).append(details)
    problems = []
    meant: set[KeyPath] = set()
    for relative, group in grouped.items():
        path = (*above, *relative)
        if group[0]["type"] == "extra_forbidden":
            guess = nearest(str(relative[-1]), _known_keys(model, group[0]["loc"]))
            hint = f"; did you mean '{guess}'?" if guess else ""
            problems.append(Problem(path, f"{unknown}{hint}"))
            meant |= {(*path[:-1], guess)} if guess else set()
        else:
            given = _given(_value(group[0]), written.get(path))
            problems.append(Problem(path, _text(path, group, given)))
    return [item for item in problems if not (item.text == _MISSING and item.path in meant)]


def validated(
    model: type[_Model],
    data: dict[str, Any],
    above: tuple[str, ...] = (),
    unknown: str = "unknown key",
) -> _Model:
    """``data`` as ``model``. ConfigError naming each wrong value, behind ``above``.

    ``unknown`` is what it says of a key that there is not.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        wrong = from_validation(error, model, data, {}, above, unknown)
    # Outside, so that it does not come with what pydantic said.
    return raise_all("", wrong)


def path_of(details: ErrorDetails, data: Any) -> KeyPath:
    """The path in the user's data: without the names that pydantic gives to union members."""
    found: list[str | int] = []
    loc = details["loc"]
    for number, part in enumerate(loc):
        if _has(data, part):
            data = data[part]
        elif not (details["type"] == "missing" and number == len(loc) - 1):
            continue
        found.append(part)
    if details["type"] in ("union_tag_invalid", "union_tag_not_found"):
        found.append("kind")  # of all unions
    return tuple(found)


def _has(data: Any, part: str | int) -> bool:
    if isinstance(data, list):
        return isinstance(part, int) and part < len(data)
    return isinstance(data, dict) and part in data


def _value(details: ErrorDetails) -> Any:
    return details.get("ctx", {}).get("tag", details["input"])


def _text(path: KeyPath, group: Sequence[ErrorDetails], given: str) -> str:
    """One message for all the errors at one place; several are the members of a union."""
    needs = [_NEEDS[details["type"]] for details in group if details["type"] in _NEEDS]
    others = [details for details in group if details["type"] not in _NEEDS]
    if needs and all(details["type"] == "literal_error" for details in others):
        needs += [details["ctx"]["expected"] for details in others]  # a word besides
        others = []
    if not others:
        return f"needs {' or '.join(dict.fromkeys(needs))}, got {given}"
    details = others[0]
    kind = details["type"]
    context = {name: _tidy(value) for name, value in details.get("ctx", {}).items()}
    if kind in ("missing", "union_tag_not_found"):
        return _MISSING
    if kind in ("literal_error", "union_tag_invalid"):
        return _choice(str(path[-1]), details, given)
    if kind == "json_invalid":
        return "has text that is not UTF-8"
    if kind == "string_too_short" and context.get("min_length") == 1:
        return "must not be empty"
    if kind in _MUST:
        return f"{_MUST[kind].format(**context)}, got {given}"
    message = details["msg"].removeprefix("Value error, ")
    return message if kind in _WHOLE else f"{message}, got {given}"


def _choice(key: str, details: ErrorDetails, given: str) -> str:
    context = details.get("ctx", {})
    expected: str = context.get("expected_tags") or context["expected"]
    names = [name.strip("'") for name in expected.replace(" or ", ", ").split(", ")]
    value = _value(details)
    guess = nearest(value, names) if isinstance(value, str) else None
    hint = f"did you mean '{guess}'? Known" if guess else "known"
    return f"unknown {key} {given}; {hint}: {', '.join(names)}"


def _given(value: Any, written: str | None) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "a mapping"
    if value is None:
        return "nothing"
    text = redact_uri(written if written is not None else _plain(value))
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return repr(text) if isinstance(value, str) else text


def _tidy(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _known_keys(model: type[BaseModel], loc: KeyPath) -> list[str]:
    classes = [model]
    for part in loc[:-1]:
        fields = [cls.model_fields[part] for cls in classes if part in cls.model_fields]
        nested = [cls for field in fields for cls in _models_in(field.annotation)]
        tagged = [
            cls
            for cls in classes
            if any(part in get_args(field.annotation) for field in cls.model_fields.values())
        ]
        classes = nested or tagged or classes
    return list(dict.fromkeys(name for cls in classes for name in cls.model_fields))


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [cls for part in get_args(annotation) for cls in _models_in(part)]
