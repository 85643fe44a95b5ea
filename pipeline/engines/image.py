"""Conversion of images to model input inside the engine's graph."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["ImageInput"]


class ImageInput(NamedTuple):
    """Conversions that the engine folds into the graph, so that a slot's input is u8 NHWC.

    Frames are BGR; ``color`` is the order that the model wants. The model sees
    (value - mean) / scale; each has one number, one for each channel, or none.
    """

    color: Literal["bgr", "rgb"] = "bgr"
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()


ImageInput.__module__ = "pipeline"  # so that pickles survive moves
