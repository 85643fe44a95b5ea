"""Settings of the sinks, told apart by ``kind``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ConsoleSettings", "JsonlSettings", "SinkSettings", "VideoSettings"]


class _SinkBase(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: Literal["block", "drop_newest"] | None = Field(
        default=None,
        description="When this sink is slower than the results: block holds the pipeline back, "
        "drop_newest leaves results out and counts them. By default block when the source waits "
        "for the pipeline, else drop_newest.",
    )
    on_error: Literal["stop", "retry", "disable"] = Field(
        default="stop",
        description="When it cannot be written: stop ends the pipeline with an error, retry "
        "tries the same result again and again while later ones wait or are left out, disable "
        "goes on without this sink. The latter two are reported.",
    )
    queue: int = Field(
        default=4, ge=1, le=1024, description="Number of results that may wait for this sink."
    )


class ConsoleSettings(_SinkBase):
    """One line a result on standard output."""

    kind: Literal["console"]


class JsonlSettings(_SinkBase):
    """One JSON object a result, one a line, in a file."""

    kind: Literal["jsonl"]
    path: str = Field(
        min_length=1,
        description="File to write; its folders are made, an older file is replaced. Relative "
        "paths start at the folder of this file.",
    )
    digest: bool = Field(
        default=False,
        description="Tell the SHA-256 of each output's values as well, in C order, with "
        "postprocess.kind raw: runs can then be compared bit by bit.",
    )


class VideoSettings(_SinkBase):
    """The frames with boxes, labels and landmarks drawn on, as a video file."""

    kind: Literal["video"]
    path: str = Field(
        min_length=1,
        description="File to write; its folders are made, an older file is replaced, its ending "
        "(.mp4, .mov, .mkv, .webm, .ts, .avi) chooses the container. Relative paths start at the "
        "folder of this file.",
    )
    fps: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        allow_inf_nan=False,
        description="Frames per second of the file; by default those of the source, else 30.",
    )
    codec: str | None = Field(
        default=None,
        min_length=4,
        max_length=4,
        pattern=r"^[\x20-\x7e]{4}$",
        description="Four-character code of the codec: avc1 (H.264), mp4v, hev1, VP80, VP90, AV01, "
        "MJPG. By default H.264 where an encoder for it is at hand, else mp4v; VP80 in .webm and "
        "mp4v in .avi.",
    )


SinkSettings = Annotated[
    ConsoleSettings | JsonlSettings | VideoSettings, Field(discriminator="kind")
]
