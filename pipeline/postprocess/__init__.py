"""Decoders of model outputs, by their kind in the table of parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pipeline import parts
from pipeline.postprocess.settings import OwnPostprocessSettings, PostprocessSettings

if TYPE_CHECKING:
    from pipeline.contracts import Postprocess

__all__ = ["OwnPostprocessSettings", "PostprocessSettings", "make_postprocess"]


def make_postprocess(settings: PostprocessSettings | OwnPostprocessSettings) -> Postprocess:
    """The postprocess of the kind that the settings name, not yet open."""
    if isinstance(settings, OwnPostprocessSettings):
        from pipeline.postprocess.own import OwnPostprocess

        return OwnPostprocess(settings)
    return cast("Postprocess", parts.load("postprocess", settings.kind)(settings))
