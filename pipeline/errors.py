"""The error tree: one place for every error that leaves the package.

Each class carries the exit code that the command line ends with. The native
module raises these same classes; the translation is in ``native/bind/errors.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

__all__ = [
    "Abandoned",
    "AllocationError",
    "BindingError",
    "ClosedError",
    "ConfigError",
    "DeviceError",
    "EngineError",
    "EngineNotInstalledError",
    "FormatChangedError",
    "ModelError",
    "PipelineError",
    "ReaderLeftError",
    "RunError",
    "SinkError",
    "SlotStateError",
    "SourceError",
    "at",
    "dotted",
    "optional",
    "together",
    "unexpected",
]


class PipelineError(Exception):
    """Base of every error of this package.

    ``path``: keys of the setting to blame, as ("model", "path"); empty if there is none. ``file``:
    the configuration file, if it is known. ``str`` begins with both, ``message`` has neither.
    ``errors``: several of them, each with a path of its own, in place of these three.
    """

    exit_code = 1

    def __init__(
        self,
        message: str = "",
        path: Sequence[str | int] = (),
        *,
        file: str = "",
        errors: Sequence[PipelineError] = (),
    ) -> None:
        super().__init__(message)
        self.path = tuple(path)
        self.file = file
        self.errors = tuple(errors)

    @property
    def message(self) -> str:
        """The text without path and file."""
        return super().__str__()

    def __str__(self) -> str:
        if self.errors:
            return "\n".join(map(str, self.errors))
        return ": ".join(part for part in (self.file, dotted(self.path), self.message) if part)

    def locate(self, *path: str | int, file: str = "") -> None:
        """Put ``path`` before its own, and note the file unless it has one."""
        for error in self.errors or (self,):
            error.path = (*path, *error.path)
            error.file = error.file or file


class ConfigError(PipelineError, ValueError):
    """A configuration or argument is wrong."""

    exit_code = 2


class SourceError(PipelineError):
    """A source cannot be opened, read or trusted any further."""

    exit_code = 3


class FormatChangedError(SourceError):
    """Frames changed size, or how they lie in memory; ``format`` is the new one."""

    def __init__(self, message: str, frame_format: Any) -> None:
        super().__init__(message)
        self.format = frame_format


class EngineError(PipelineError):
    """An engine, its device or its model failed."""

    exit_code = 4


class EngineNotInstalledError(EngineError):
    """The engine's library is not on this machine; the message names the package."""


class ModelError(EngineError):
    """The engine refused the model, or the model does not fit the configuration."""


class DeviceError(EngineError):
    """The device is absent or lost."""


class AllocationError(EngineError):
    """The driver refused memory, or a limit on it was reached."""


class RunError(EngineError):
    """One inference failed; the message has the engine's own reason."""


class SinkError(PipelineError):
    """A sink cannot be opened or written."""

    exit_code = 5


class ReaderLeftError(SinkError):
    """The reader of standard output has closed it."""


class SlotStateError(PipelineError):
    """A slot was used in a state that does not allow it."""


class BindingError(PipelineError, ValueError):
    """A caller's array does not fit the tensor; names tensor, index, needed and given."""


class ClosedError(PipelineError):
    """The ring, executor or pipeline is closed."""


class Abandoned(NamedTuple):
    """A part that hung and was given up, by the name of its thread.

    ``kind``: the class of its errors; None for an engine that was replaced before.
    """

    kind: type[PipelineError] | None
    name: str


def dotted(path: Sequence[str | int]) -> str:
    """``sinks.0.path`` for ("sinks", 0, "path")."""
    return ".".join(map(str, path)).replace("\n", "\\n")


def together(errors: Sequence[PipelineError]) -> PipelineError:
    """One error for all: the only one, or one that holds several.

    It is a SourceError when all are that, else a ConfigError.
    """
    if len(errors) == 1:
        return errors[0]
    kind = SourceError if all(isinstance(each, SourceError) for each in errors) else ConfigError
    return kind(errors=errors)


@contextmanager
def at(*path: str | int, default: Sequence[str | int] = ()) -> Iterator[None]:
    """Around calls of a part: the path of its errors begins with these keys.

    ``default``: the further keys of an error that has no path.
    """
    try:
        yield
    except PipelineError as error:
        error.locate(*path, *(() if error.path or error.errors else default))
        raise


def unexpected(kind: type[PipelineError], part: str, error: BaseException) -> PipelineError:
    """An error of ``kind`` that names the part which raised something that no part should."""
    text = f": {error}" if str(error) else ""
    return kind(f"{part}: {type(error).__name__}{text}")


def install_advice(extra: str) -> str:
    """The command that brings what ``extra`` names, which can be followed without an index."""
    return f"pip install '.[{extra}]' in a clone of npu-pipeline"


@contextmanager
def optional(package: str, extra: str, kind: type[PipelineError]) -> Iterator[None]:
    """Around imports that need an optional package: one that is missing is named with its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise kind(
            f"needs the package {package}, which is not installed; {install_advice(extra)}"
        ) from None


for _public in [value for value in globals().values() if isinstance(value, type)]:
    if issubclass(_public, PipelineError | Abandoned):
        _public.__module__ = "pipeline"  # so that pickles survive moves
