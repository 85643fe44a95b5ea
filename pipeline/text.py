"""Figures as text, and as numbers for JSON."""

from __future__ import annotations

import math

__all__ = ["number", "shown"]


def number(value: float | None) -> float | None:
    """Rounded for JSON; None where nothing was measured."""
    return round(value, 4) if value is not None and math.isfinite(value) else None


def shown(value: float | None) -> str:
    """Three digits that matter; a dash where nothing was measured."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
