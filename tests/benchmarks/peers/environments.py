"""The peers, and the virtual environment that each of them is run in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

__all__ = ["CHECKOUT", "PEERS", "Environment", "MissingError", "Peer", "interpreter"]

CHECKOUT = Path(__file__).resolve().parents[3]

# glibc keeps freed memory of a frame's size, of all threads in one place, where it would map and
# clear it for each frame anew.
_TUNED = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_ARENA_MAX": "1",
}


class MissingError(Exception):
    """A peer cannot be run here; the message says what is missing."""


class Environment(NamedTuple):
    """Packages by name. ``python`` makes the environment; ``probe`` must run in it."""

    packages: tuple[str, ...]
    python: str = sys.executable
    system_packages: bool = False
    probe: str = ""
    advice: str = ""


class Peer(NamedTuple):
    """Which module runs in which environment, with which environment variables."""

    module: str
    environment: str
    variables: dict[str, str] = {}  # noqa: RUF012 - never changed


_GSTREAMER_PROBE = """
import gi
gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
from gi.repository import Gst, GstApp
Gst.init(None)
for name in ("qtdemux", "h264parse", "avdec_h264", "videoscale", "videoconvert", "appsink"):
    assert Gst.ElementFactory.find(name), name
"""

_ENVIRONMENTS = {
    "opencv": Environment(("openvino", "opencv-python-headless")),
    "gstreamer": Environment(
        ("openvino", "numpy"),
        "/usr/bin/python3",
        system_packages=True,
        probe=_GSTREAMER_PROBE,
        advice="apt-get install python3-venv python3-gi gir1.2-gst-plugins-base-1.0 "
        "gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-libav",
    ),
    "roboflow": Environment(("streamvision", "openvino")),
    "ultralytics": Environment(("ultralytics", "openvino")),  # brings torch: gigabytes
    "model_api": Environment(("openvino-model-api",)),
}

PEERS = {
    "ours": Peer("ours", "ours"),
    "limit": Peer("limit", "ours"),
    "threads": Peer("threads", "opencv"),
    "threads+malloc": Peer("threads", "opencv", _TUNED),
    "gstreamer_plain": Peer("gstreamer_plain", "gstreamer"),
    "gstreamer": Peer("gstreamer", "gstreamer"),
    "gstreamer+malloc": Peer("gstreamer", "gstreamer", _TUNED),
    "async_queue_plain": Peer("async_queue_plain", "opencv"),
    "async_queue": Peer("async_queue", "opencv"),
    "async_queue+malloc": Peer("async_queue", "opencv", _TUNED),
    "roboflow_plain": Peer("roboflow_plain", "roboflow"),
    "roboflow": Peer("roboflow", "roboflow"),
    "model_api": Peer("model_api", "model_api"),
    "ultralytics": Peer("ultralytics", "ultralytics"),
    "plain_u8": Peer("plain_u8", "opencv"),
    "plain": Peer("plain", "opencv"),
}


def interpreter(name: str, work: Path, ours: str | None) -> str:
    """The Python of environment ``name``, made below ``work`` if it is not there yet.

    ``ours`` runs this library; None installs the checkout. MissingError.
    """
    if name == "ours":
        if ours is not None:
            return ours
        environment = Environment((f"{CHECKOUT}[openvino,streams]",))
    else:
        environment = _ENVIRONMENTS[name]
    folder = work / f"venv-{name}"
    python, ready = str(folder / "bin" / "python"), folder / "ready"
    if not ready.exists():
        _make(environment, folder)
        ready.touch()
    return python


def _make(environment: Environment, folder: Path) -> None:
    more = ["--system-site-packages"] if environment.system_packages else []
    python = str(folder / "bin" / "python")
    _run([environment.python, "-m", "venv", *more, str(folder)], environment)
    if environment.probe:
        _run([python, "-c", environment.probe], environment)
    _run([python, "-m", "pip", "install", "--quiet", *environment.packages], environment)


def _run(command: list[str], environment: Environment) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        # pip ends with notices.
        said = next((line for line in reversed(lines) if "rror" in line), lines[-1])
        advice = f"; {environment.advice}" if environment.advice else ""
        raise MissingError(f"{said}{advice}") from error
