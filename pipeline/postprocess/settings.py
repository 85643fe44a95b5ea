"""Settings of postprocessing."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["PostprocessSettings"]


class PostprocessSettings(BaseModel):
    """Decoding of the model's outputs to detections."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["raw", "centerface"] = Field(
        default="raw",
        description="raw hands the output tensors on as they are; centerface decodes faces with "
        "five landmarks.",
    )
    threshold: float = Field(
        default=0.5, ge=0, le=1, description="Detections with a lower score are left out, 0..1."
    )
    iou_threshold: float = Field(
        default=0.3,
        ge=0,
        le=1,
        description="Of two boxes that overlap by more than this intersection over union, only "
        "the better is kept.",
    )
    max_detections: int = Field(
        default=300,
        ge=1,
        le=100_000,
        description="At most this many detections a frame, best first.",
    )
    labels: tuple[str, ...] = Field(
        default=(), description="Names of the classes, in order of their index in the model."
    )
