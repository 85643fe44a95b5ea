"""Settings of a source."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

__all__ = ["SourceSettings"]


def _check_uri(value: object) -> object:
    # One message instead of one for each type; what was given may hold a password.
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise PydanticCustomError("uri", "needed a path, a URL or a camera index (0 or more)")


class SourceSettings(BaseModel):
    """Where frames come from and what happens when they come too fast."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    uri: Annotated[str | int, BeforeValidator(_check_uri)] = Field(
        description="A video file, a folder of images, a URL (rtsp://, http://, https://), a "
        "camera index, /dev/video*, package://PACKAGE/path for a file inside an installed "
        'package, or "synthetic:" (also "synthetic:?width=640&height=480&fps=30&frames=100"). '
        "Relative paths start at the folder of this file.",
    )
    name: str = Field(
        default="camera", min_length=1, description="Camera name that every result carries."
    )
    realtime: bool = Field(
        default=False,
        description="Play a file at its own pace instead of as fast as it can be processed.",
    )
    loop: bool = Field(default=False, description="Start a file or folder again at its end.")
    overflow: Literal["block", "latest", "drop_newest"] | None = Field(
        default=None,
        description="When frames come faster than they are processed: block waits and loses "
        "nothing, latest replaces the waiting frame by the newest, drop_newest drops the new "
        "one. By default block for files, latest for cameras, streams and realtime files.",
    )
    queue: int = Field(default=1, ge=1, le=64, description="Number of frames that may wait.")
    width: int | None = Field(
        default=None, ge=1, le=16384, description="Width in pixels asked of a camera or synthetic."
    )
    height: int | None = Field(
        default=None, ge=1, le=16384, description="Height in pixels asked of a camera or synthetic."
    )
    fps: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        allow_inf_nan=False,
        description="Frames per second asked of a camera, made by synthetic, or at which "
        "realtime plays a source that has no rate of its own.",
    )
    frames: int | None = Field(
        default=None,
        ge=1,
        description="Number of frames after which synthetic ends; never if not set.",
    )
