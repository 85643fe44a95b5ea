"""What each server does; the parent sets it, at the start or while the server runs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Behaviour",
    "CodedBehaviour",
    "HlsBehaviour",
    "MjpegBehaviour",
    "ProxyBehaviour",
    "RtspBehaviour",
]


@dataclass(frozen=True)
class Behaviour:
    """Common to all. Frame ``n`` is due ``n / fps`` seconds after the server's epoch.

    ``port`` 0 takes a free one. The server refuses connections for its first ``late`` seconds.
    With ``user`` it answers only to that user and password.
    """

    port: int = 0
    width: int = 320
    height: int = 240
    fps: float = 25.0
    late: float = 0.0
    user: str = ""
    password: str = ""


@dataclass(frozen=True)
class CameraBehaviour(Behaviour):
    """A camera. Counts of frames are those of one connection (RTSP: of one media).

    ``stop_after``: ends the stream, as cameras that shut down do. ``resize_after``: from then
    on frames are ``resize_to`` (width, height). ``stalled``: sends nothing more, the
    connection stays. ``still``: sends the same frame without limit.
    """

    stop_after: int | None = None
    resize_after: int | None = None
    resize_to: tuple[int, int] = (640, 480)
    stalled: bool = False
    still: bool = False

    def size(self, sent: int) -> tuple[int, int]:
        """Width and height of the frame after ``sent`` ones."""
        resized = self.resize_after is not None and sent >= self.resize_after
        return self.resize_to if resized else (self.width, self.height)


@dataclass(frozen=True)
class CodedBehaviour(CameraBehaviour):
    """H.264. ``damage`` is the probability with which each of its bytes is overwritten."""

    damage: float = 0.0


@dataclass(frozen=True)
class RtspBehaviour(CodedBehaviour):
    """RTSP over what ``transport`` allows: ``tcp``, ``udp`` or ``both``."""

    transport: str = "both"


@dataclass(frozen=True)
class HlsBehaviour(CodedBehaviour):
    """A live playlist of the last ``window`` segments of a second; it is closed at the end."""

    window: int = 4


@dataclass(frozen=True)
class MjpegBehaviour(CameraBehaviour):
    """JPEG frames as multipart/x-mixed-replace.

    ``bytes_per_second`` slows everything that is sent. ``freeze_after``: the frame after so
    many is sent by half, then nothing. ``garbage``: so many random bytes before each part.
    ``lengths`` says whether parts declare their Content-Length.
    """

    bytes_per_second: float | None = None
    freeze_after: int | None = None
    garbage: int = 0
    lengths: bool = True


@dataclass(frozen=True)
class ProxyBehaviour(Behaviour):
    """Forwards TCP to ``target``, a port of this machine, and spoils what comes back.

    ``bytes_per_second`` slows it, ``stalled`` forwards nothing more, ``garbage`` puts so many
    random bytes in front of each chunk, ``cut_after`` bytes the connection is reset.
    """

    target: int = 0
    bytes_per_second: float | None = None
    stalled: bool = False
    garbage: int = 0
    cut_after: int | None = None
