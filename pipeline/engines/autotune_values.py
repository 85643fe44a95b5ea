"""Settings of an engine that can be measured, and values worth trying."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

__all__ = ["Threads", "Trials"]

Threads = Annotated[int, Field(ge=1, le=1024)] | Literal["auto"]
"""The setting of engines that compute with CPU threads."""


class Trials(NamedTuple):
    """At most so many contexts, and ``options.threads`` for a number of them.

    ``threads`` is None where there are no CPU threads to choose: the option is then left out.
    """

    most_contexts: int
    threads: Callable[[int], tuple[int, ...]] | None = None


Trials.__module__ = "pipeline"  # so that pickles survive moves
