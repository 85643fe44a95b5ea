"""Pauses between attempts."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["Backoff"]


@dataclass(frozen=True)
class Backoff:
    """Pauses doubled each time up to ``max_s``, spread by the share ``jitter``.

    ``attempts`` in a row before giving up; None: without limit.
    """

    initial_s: float = 0.5
    max_s: float = 30.0
    jitter: float = 0.2
    attempts: int | None = None

    def pause(self, attempt: int) -> float:
        """Seconds before attempt number ``attempt``, counted from 1."""
        pause = min(self.max_s, self.initial_s * 2.0 ** min(attempt - 1, 30))
        return pause * (1 + random.uniform(-self.jitter, self.jitter))
