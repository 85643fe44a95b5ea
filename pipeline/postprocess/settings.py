"""Settings of postprocessing."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from pipeline.parts import OWN, Group, OwnPart, kind_of_settings, own_kind_schema

__all__ = ["AnyPostprocessSettings", "OwnPostprocessSettings", "PostprocessSettings"]


class PostprocessSettings(BaseModel):
    """Decoding of the model's outputs by a built-in postprocess."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["raw", "centerface", "yolo_end2end", "yolov5", "yolov8"] = Field(
        default="raw",
        description="raw returns the output tensors unchanged; centerface decodes faces with five "
        "landmarks; yolov8 (v6, v8, v9, v11, v12), yolov5 (v5, v7) and yolo_end2end (v10, v26, "
        "exports with NMS) decode boxes.",
    )
    threshold: float = Field(
        default=0.5, ge=0, le=1, description="Least score of a detection, 0..1."
    )
    iou_threshold: float = Field(
        default=0.3,
        ge=0,
        le=1,
        description="If two boxes overlap by more than this intersection over union, only the "
        "better one is kept.",
    )
    max_detections: int = Field(
        default=300,
        ge=1,
        le=100_000,
        description="Most detections per frame; the best are kept.",
    )
    classes: tuple[str | int, ...] = Field(
        default=(),
        max_length=10_000,
        description="Classes to keep, by label or index; by default all.",
    )
    labels: tuple[str, ...] = Field(
        default=(), description="Class names, in order of their index in the model."
    )


class OwnPostprocessSettings(OwnPart):
    """A postprocess that is not built in."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    group: ClassVar[Group] = "postprocess"
    needed: ClassVar = ("process",)
    optional: ClassVar = ("open",)

    kind: str = Field(
        json_schema_extra=own_kind_schema("postprocess"),
        description="The class as package.module:Name, or the name of an installed postprocess; "
        "`python -m pipeline parts` lists those.",
    )


AnyPostprocessSettings = Annotated[
    Annotated[PostprocessSettings, Tag("built in")] | Annotated[OwnPostprocessSettings, Tag(OWN)],
    Discriminator(kind_of_settings("postprocess", others="built in")),
]
