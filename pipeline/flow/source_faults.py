"""Unexpected errors in the parts of a camera, as that camera's SourceError."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from pipeline.errors import ConfigError, PipelineError, SourceError

__all__ = ["SourceFaults"]

_log = logging.getLogger(__name__)
_LONGEST = 200

Ts = TypeVarTuple("Ts")
T = TypeVar("T")


class SourceFaults:
    """Guard around the parts of one camera: only SourceError and ConfigError leave it.

    Each kind of unexpected error is logged once, with its traceback. Any error is a fault of the
    part, even StopIteration and CancelledError.
    """

    def __init__(self, camera: str) -> None:
        self._camera = camera
        self._seen: set[tuple[str, type[BaseException]]] = set()

    def call(self, part: str, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call a part; KeyboardInterrupt and SystemExit pass."""
        try:
            return function(*args)
        except (SourceError, ConfigError, KeyboardInterrupt, SystemExit):
            raise
        except PipelineError as error:
            del function, args  # frames of the traceback must hold no view of a slot
            _let_go(error)
            raise SourceError(str(error)) from error
        except BaseException as error:
            del function, args
            raise self.unexpected(part, error) from error

    def unexpected(self, part: str, error: BaseException) -> SourceError:
        """Log the error and describe it in one line."""
        _let_go(error)
        said = " ".join(str(error).split())[:_LONGEST]
        text = f"unexpected {type(error).__name__} in {part}" + (f": {said}" if said else "")
        kind = (part, type(error))
        if kind not in self._seen:
            self._seen.add(kind)
            extra = {"source": self._camera}
            _log.error("%s: %s", self._camera, text, exc_info=error, extra=extra)
        return SourceError(text)


def _let_go(error: BaseException) -> None:
    """Drop the variables of the frames that have ended."""
    traceback.clear_frames(error.__traceback__)
