"""Settings of the sinks, one class for each ``kind``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
)

from pipeline.parts import OWN, Group, OwnPart, kind_of_settings, own_kind_schema

__all__ = [
    "STANDARD_OUTPUT",
    "ConsoleSettings",
    "JsonlSettings",
    "OwnSinkSettings",
    "SinkBase",
    "SinkSettings",
    "VideoSettings",
    "refuse_shared_output",
]

STANDARD_OUTPUT = "-"
"""The path that is no file."""

_CONTAINERS = (".mp4", ".mov", ".m4v", ".mkv", ".webm", ".ts", ".avi")


class SinkBase(BaseModel):
    """Settings of every sink."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    overflow: Literal["block", "drop_newest"] | None = Field(
        default=None,
        description="If the sink is slower than the results: block holds the pipeline back, "
        "drop_newest skips results and counts them. By default block if the source waits for the "
        "pipeline, else drop_newest.",
    )
    on_error: Literal["stop", "retry", "disable"] = Field(
        default="stop",
        description="If a result cannot be written: stop ends the pipeline with an error, retry "
        "tries the same result again while later ones wait or are skipped, disable continues "
        "without this sink. retry and disable are reported.",
    )
    queue: int = Field(
        default=4, ge=1, le=1024, description="Number of results that may wait for the sink."
    )

    @property
    def needs_image(self) -> bool:
        """True if the sink looks at ``result.image``."""
        return False


def _file_name(path: str) -> str:
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        raise ValueError("must not contain control characters")
    return path


_Path = Annotated[str, Field(min_length=1), AfterValidator(_file_name)]


class ConsoleSettings(SinkBase):
    """One line a result on standard output."""

    kind: Literal["console"]


class JsonlSettings(SinkBase):
    """One JSON object a result, one a line, in a file or on standard output."""

    kind: Literal["jsonl"]
    path: _Path = Field(
        description="File to write; its folders are made, an older file is replaced. Relative "
        "paths start at the folder of this file. A hyphen is standard output.",
    )
    digest: bool = Field(
        default=False,
        description="Add the SHA-256 of each output's values, in C order, to compare runs bit by "
        "bit; with postprocess.kind raw.",
    )


class VideoSettings(SinkBase):
    """The frames with boxes, labels and landmarks drawn on, as a video file."""

    kind: Literal["video"]
    path: _Path = Field(
        description="File to write; its folders are made, an older file is replaced, its ending "
        "(.mp4, .mov, .m4v, .mkv, .webm, .ts, .avi) chooses the container. Relative paths start "
        "at the folder of this file.",
    )
    fps: float | None = Field(
        default=None,
        ge=0.1,
        le=1000,
        description="Frames per second of the file; by default those of the source, else 30.",
    )
    codec: str | None = Field(
        default=None,
        min_length=4,
        max_length=4,
        pattern=r"^[\x20-\x7e]{4}$",
        description="Four-character code of the codec: avc1 (H.264), mp4v, hev1, VP80, VP90, "
        "AV01, MJPG. By default H.264 if an encoder for it is available, else mp4v; VP80 in .webm "
        "and mp4v in .avi.",
    )

    @property
    def needs_image(self) -> bool:
        """Always: it shows the frames."""
        return True

    @field_validator("path")
    @classmethod
    def _has_a_container(cls, path: str) -> str:
        if path == STANDARD_OUTPUT:
            raise ValueError(
                "needs a file; a video cannot go to standard output, so name one such as out.mkv"
            )
        if os.path.splitext(path)[1].lower() not in _CONTAINERS:
            raise ValueError(f"needs an ending that a video can have: {', '.join(_CONTAINERS)}")
        return path


class OwnSinkSettings(OwnPart, SinkBase):
    """A sink that is not built in."""

    group: ClassVar[Group] = "sinks"
    needed: ClassVar = ("write",)
    optional: ClassVar = ("open", "begin", "interrupt", "close")

    kind: str = Field(
        json_schema_extra=own_kind_schema("sinks"),
        description="The class as package.module:Name, or the name of an installed sink; "
        "`python -m pipeline parts` lists those.",
    )

    @property
    def needs_image(self) -> bool:
        """True if the class or object says so."""
        return self.fact("needs_image")


SinkSettings = Annotated[
    Annotated[ConsoleSettings, Tag("console")]
    | Annotated[JsonlSettings, Tag("jsonl")]
    | Annotated[VideoSettings, Tag("video")]
    | Annotated[OwnSinkSettings, Tag(OWN)],
    Discriminator(kind_of_settings("sinks")),
]


def refuse_shared_output(sinks: Sequence[SinkBase]) -> None:
    """ValueError when JSON Lines on standard output would mix with lines of another sink."""
    users = [
        index
        for index, sink in enumerate(sinks)
        if isinstance(sink, ConsoleSettings) or getattr(sink, "path", None) == STANDARD_OUTPUT
    ]
    if len(users) > 1 and any(isinstance(sinks[index], JsonlSettings) for index in users):
        first, second = users[:2]
        raise ValueError(f"sinks.{first} and sinks.{second} both write to standard output")
