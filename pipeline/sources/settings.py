"""Settings of a source."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from pipeline.errors import ConfigError
from pipeline.parts import Group, OwnPart, is_own, own_kind_schema, own_kinds
from pipeline.redact import redact_uri

__all__ = [
    "IMAGE_ENDINGS",
    "MAX_PIXELS",
    "STANDARD_INPUT",
    "OnDamage",
    "ReconnectSettings",
    "SourceSettings",
]

STANDARD_INPUT = ("-", "pipe:", "pipe:0", "/dev/stdin", "/dev/fd/0")
IMAGE_ENDINGS = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
MAX_PIXELS = 64_000_000
OnDamage = Literal["count", "drop", "fail"]


def _check_kind(kind: str | None) -> str | None:
    if kind is None or is_own("sources", kind):
        return kind
    raise PydanticKnownError("literal_error", {"expected": ", ".join(own_kinds("sources"))})


def _check_uri(value: object, info: ValidationInfo) -> object:
    wrong_kind = "kind" not in info.data  # which is one problem already
    if wrong_kind or info.data["kind"] is not None:
        if value is None:
            return ""
        raise PydanticCustomError("two_sources", "belongs to a built-in source; kind names another")
    if value is None:
        raise PydanticKnownError("missing")
    # One message instead of one for each type; what was given may hold a password.
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise PydanticCustomError("uri", "needed a path, a URL or a camera index (0 or more)")


class ReconnectSettings(BaseModel):
    """Reopening of a lost live source."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    initial_s: float = Field(
        default=0.5, gt=0, le=3600, description="Pause before the first attempt, seconds."
    )
    max_s: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="Longest pause, seconds; each pause is twice the one before.",
    )
    jitter: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="Share by which a pause is lengthened or shortened at random, so that many "
        "cameras do not reconnect at once.",
    )
    attempts: int | None = Field(
        default=None,
        ge=0,
        description="Attempts in a row before giving up; unlimited if not set, 0 disables.",
    )


def _own_or_uri(schema: dict[str, Any]) -> None:
    del schema["properties"]["uri"]["default"]
    schema["oneOf"] = [{"required": ["uri"]}, {"required": ["kind"]}]


class SourceSettings(OwnPart):
    """Origin of frames, and what happens when they come too fast.

    Its text (``repr``, ``str``) shows of the URI what ``pipeline.redact.redact_uri`` shows.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
        json_schema_extra=_own_or_uri,
    )
    group: ClassVar[Group] = "sources"
    needed: ClassVar = ("open", "grab", "retrieve")
    optional: ClassVar = ("interrupt", "close")

    kind: Annotated[str | None, AfterValidator(_check_kind)] = Field(
        default=None,
        json_schema_extra=own_kind_schema("sources"),
        description="In place of uri, a source that is not built in: its class as "
        "package.module:Name, or the name of an installed one; `python -m pipeline parts` lists "
        "those.",
    )
    uri: Annotated[str | int, BeforeValidator(_check_uri)] = Field(
        default=None,
        validate_default=True,
        description="A video file, an image, a folder of images, a URL (rtsp://, http://, "
        "https://), a FIFO, - for standard input, a camera index, /dev/video*, "
        "package://PACKAGE/path for a file inside an installed "
        'package, "synthetic:" (also "synthetic:?width=640&height=480&fps=30&frames=100"), '
        'or "gstreamer: ELEMENT ! ..." where OpenCV has GStreamer. '
        "Relative paths start at the folder of this file.",
    )
    name: str = Field(
        default="camera", min_length=1, description="Camera name that every result carries."
    )
    live: bool | None = Field(
        default=None,
        description="true: a URL is a camera, which is reopened when it ends. false: it is a "
        "file, which is read once, without loss. By default the server's answer decides: a stream "
        "with a length is a file. Of a source of your own: true if frames come at their own pace.",
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
    queue: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Number of frames that may wait. By default 4 if overflow is block, to even "
        "out short delays, else 1, as waiting frames age.",
    )
    width: int | None = Field(
        default=None,
        ge=1,
        le=16384,
        description="Width in pixels, requested from a camera or synthetic, or that of raw frames.",
    )
    height: int | None = Field(
        default=None,
        ge=1,
        le=16384,
        description="Height in pixels, requested from a camera or synthetic, or that of raw "
        "frames.",
    )
    max_pixels: int = Field(
        default=MAX_PIXELS,
        ge=1,
        le=1_000_000_000,
        description="Largest accepted image, width times height. A source that announces a larger "
        "one is refused before memory is allocated for it.",
    )
    fps: float | None = Field(
        default=None,
        ge=0.001,
        le=1000,
        description="Frames per second requested from a camera, made by synthetic, or at which "
        "realtime plays a source without a rate of its own.",
    )
    frames: int | None = Field(
        default=None,
        ge=1,
        le=2**63 - 1,
        description="End after this many frames, even if the source would go on.",
    )
    fourcc: str | None = Field(
        default=None,
        min_length=4,
        max_length=4,
        description="Pixel format requested from a camera, for example MJPG or YUYV.",
    )
    format: Literal["bgr24", "rgb24", "gray", "yuv420p", "nv12"] | None = Field(
        default=None,
        description="Pixel format of raw frames in a pipe, of width x height. By default a pipe "
        "carries a container.",
    )
    pixels: Literal["auto", "bgr"] = Field(
        default="auto",
        description="Storage of frames. auto keeps the decoder's planes and converts only what "
        "the model needs. bgr converts each whole frame, which costs less if a program reads "
        "every image. Always bgr if a sink needs images.",
    )
    transport: Literal["tcp", "udp"] = Field(
        default="tcp",
        description="Transport of RTSP streams: tcp loses nothing, udp has less delay. There is "
        "no fallback to the other.",
    )
    open_timeout_s: float = Field(
        default=10.0, gt=0, le=3600, description="Live: most seconds to open the source."
    )
    read_timeout_s: float = Field(
        default=5.0,
        gt=0,
        le=3600,
        description="Live: seconds without a frame after which the source counts as lost.",
    )
    stale_after_s: float = Field(
        default=10.0,
        ge=0,
        le=3600,
        description="Live: seconds with exactly the same image after which the source is "
        "reopened; 0 disables.",
    )
    at_start: Literal["fail", "wait"] | None = Field(
        default=None,
        description="If a live source cannot be opened at the start: fail ends the program, wait "
        "keeps trying. By default wait for streams and if there are several cameras, fail for a "
        "single device.",
    )
    reconnect: ReconnectSettings = Field(
        default=ReconnectSettings(),
        description="Pauses and attempts when a lost live source is reopened.",
    )
    on_damage: OnDamage | None = Field(
        default=None,
        description="A frame that its decoder reports as damaged: count delivers it, drop skips "
        "it, fail ends the source; all are counted. By default count for video files, fail for "
        "images. A live stream always skips damage up to the next key frame.",
    )
    max_age_ms: float | None = Field(
        default=None,
        gt=0,
        le=86_400_000,
        description="Frames older than this are dropped before inference and counted as stale.",
    )
    max_fps: float | None = Field(
        default=None,
        ge=0.001,
        le=1000,
        description="Most frames taken per second; others are dropped and counted as rate.",
    )
    weight: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        description="Share of the engine when cameras compete for it: a camera of weight 2 gets "
        "twice the frames of one of weight 1.",
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        for name, value in super().__repr_args__():
            yield name, redact_uri(value) if name == "uri" and isinstance(value, str) else value

    @property
    def comes_live(self) -> bool:
        """True if frames of a source that is not built in come at their own pace."""
        return self.fact("live") if self.live is None else self.live

    @property
    def reopenable(self) -> bool:
        """True if such a source can be opened again: its class is called again, or it says so."""
        return self.kind is not None or self.fact("reopenable")

    def with_object(self, part: Any) -> Self:
        """Settings for a ``Reader``, or for an async iterable of arrays."""
        if isinstance(part, AsyncIterable):
            return self._of_object(part)
        if not isinstance(part, type) and not hasattr(part, "grab"):
            given = type(part).__name__
            raise ConfigError(f"needed an async iterable of arrays or a Reader, got {given}")
        return super().with_object(part)
