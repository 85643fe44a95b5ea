"""The whole configuration of a pipeline, as immutable models without a word about YAML."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from pipeline.engines.settings import ModelSettings
from pipeline.postprocess.settings import AnyPostprocessSettings, PostprocessSettings
from pipeline.preprocess.preprocessor import PreprocessSettings
from pipeline.sinks.settings import SinkSettings, refuse_shared_output
from pipeline.sources.settings import SourceSettings

__all__ = ["CAMERA_NAME", "CameraSettings", "Cameras", "Config", "RingSettings"]

CAMERA_NAME = r"^[\w.-]{1,64}$"
_Depth = Annotated[int, Field(ge=1, le=256)]


class RingSettings(BaseModel):
    """The slots that rotate through the engine."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    depth: _Depth | Literal["auto"] = Field(
        default=4,
        description="Number of slots; each holds driver memory for every input and output. auto: "
        "enough to keep the contexts busy, or fewer if memory is short. By default auto if "
        "model.contexts is auto.",
    )


class CameraSettings(SourceSettings):
    """One of several cameras; its name is its key."""

    preprocess: PreprocessSettings | None = Field(
        default=None,
        description="What differs from the common preprocess: resize, color, pad, interpolation. "
        "Mean and scale are the model's, for all cameras alike.",
    )


class Cameras(BaseModel):
    """Several sources, by name."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    cameras: dict[Annotated[str, Field(pattern=CAMERA_NAME)], CameraSettings] = Field(
        default_factory=dict,
        max_length=256,
        description="Several sources that share the model, by name; in place of source.",
    )

    @model_validator(mode="after")
    def _differ_in_frames_only(self) -> Self:
        for name, camera in self.cameras.items():
            own = camera.preprocess.model_fields_set if camera.preprocess else set()
            if key := next((key for key in ("mean", "scale") if key in own), None):
                raise PydanticCustomError(
                    "camera_mean",
                    "cameras.{name}.preprocess.{key}: belongs to the model, which all cameras "
                    "share; set preprocess.{key}",
                    {"name": name, "key": key},
                )
        return self


class Config(Cameras):
    """One pipeline: a source, or several, a model on an engine, and where the results go.

    ``pipeline.config.loading`` makes it from a YAML file or a mapping, with all paths absolute.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
        title="Pipeline configuration",
    )

    source: SourceSettings | None = Field(default=None, description="Source of frames; or cameras.")
    model: ModelSettings = Field(description="The model, and the engine and device it runs on.")
    ring: RingSettings = Field(default=RingSettings(), description="The slots.")
    preprocess: PreprocessSettings = Field(
        default=PreprocessSettings(), description="How a frame becomes the model's input."
    )
    postprocess: AnyPostprocessSettings = Field(
        default=PostprocessSettings(), description="How outputs become detections."
    )
    sinks: tuple[SinkSettings, ...] = Field(
        default=(), max_length=64, description="Targets of the results; may be empty."
    )
    drain_s: float = Field(
        default=5.0,
        ge=0,
        le=3600,
        description="Most seconds that frames in flight may take when the pipeline is stopped.",
    )

    @property
    def sources(self) -> dict[str, SourceSettings]:
        """The source, or all cameras, by name."""
        if self.source is not None:
            return {self.source.name: self.source}
        return dict(self.cameras)

    def preprocess_of(self, source: SourceSettings) -> PreprocessSettings:
        """The common preprocessing, with what the camera sets of its own."""
        own = source.preprocess if isinstance(source, CameraSettings) else None
        if own is None:
            return self.preprocess
        return self.preprocess.model_copy(
            update={name: getattr(own, name) for name in own.model_fields_set}
        )

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        if (self.source is None) == (not self.cameras):
            raise PydanticCustomError(
                "one_source", "source: needed, or cameras, and not both of them"
            )
        refuse_shared_output(self.sinks)
        depth = self.ring.depth
        if depth != "auto" and depth < self.model.context_count():
            raise PydanticCustomError(
                "ring_depth",
                "ring.depth: {depth} is fewer than model.contexts {contexts}: "
                "each context needs a slot",
                {"depth": depth, "contexts": self.model.contexts},
            )
        return self


Config.__module__ = "pipeline"  # so that pickles survive moves
