"""Decoders of model outputs; ``make_postprocess`` chooses by the kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.postprocess.settings import PostprocessSettings

if TYPE_CHECKING:
    from pipeline.contracts import Postprocess

__all__ = ["PostprocessSettings", "make_postprocess"]


def make_postprocess(settings: PostprocessSettings) -> Postprocess:
    """The postprocess of the kind that the settings name, not yet open."""
    return _KINDS[settings.kind](settings)


def _raw(settings: PostprocessSettings) -> Postprocess:
    from pipeline.postprocess.raw import Raw

    return Raw(settings)


def _centerface(settings: PostprocessSettings) -> Postprocess:
    from pipeline.postprocess.centerface import CenterFace

    return CenterFace(settings)


_KINDS = {"raw": _raw, "centerface": _centerface}
