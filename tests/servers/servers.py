"""The servers that tests start; what each runs is the module named by ``program``."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .behaviour import HlsBehaviour, MjpegBehaviour, ProxyBehaviour, RtspBehaviour
from .process import Server

__all__ = ["HlsServer", "MjpegServer", "RtspServer", "TroubleProxy", "gstreamer_missing"]

_DEBIAN_PYTHON = "/usr/bin/python3"  # the one for which Debian builds the GStreamer bindings
_ELEMENTS = (
    "appsrc",
    "breakmydata",
    "h264parse",
    "hlssink2",
    "mpegtsmux",
    "openh264enc",
    "rtph264pay",
)
_PROBE = """
import sys, gi
gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import Gst, GstRtspServer
Gst.init(None)
sys.exit(" ".join(n for n in sys.argv[1:] if not Gst.ElementFactory.find(n)) or 0)
"""


@functools.cache
def gstreamer_missing() -> str | None:
    """Why the RTSP and HLS servers cannot run on this machine; None when it can."""
    if shutil.which(_DEBIAN_PYTHON) is None:
        return f"no {_DEBIAN_PYTHON} with the GStreamer bindings"
    command: Sequence[str] = (_DEBIAN_PYTHON, "-c", _PROBE, *_ELEMENTS)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:
        return None
    why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return f"GStreamer with its RTSP server is not installed ({why}); the packages are in .ci/apt"


class RtspServer(Server):
    """GStreamer's RTSP server with an H.264 camera; the numbers go on between clients."""

    program = "run_rtsp"
    python = _DEBIAN_PYTHON
    scheme = "rtsp"
    path = "/camera"
    request = b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n"
    answer = b"RTSP/1.0 200"

    def __init__(self, **behaviour: Any) -> None:
        super().__init__(RtspBehaviour(**behaviour))


class MjpegServer(Server):
    """A camera that sends JPEG frames over HTTP, as most network cameras can."""

    program = "run_mjpeg"
    path = "/video.mjpg"
    request = b"HEAD / HTTP/1.0\r\n\r\n"
    answer = b"HTTP/1.1 "

    def __init__(self, **behaviour: Any) -> None:
        super().__init__(MjpegBehaviour(**behaviour))


class HlsServer(Server):
    """A live playlist of H.264 segments that a camera fills, served over HTTP."""

    program = "run_hls"
    python = _DEBIAN_PYTHON
    path = "/live.m3u8"
    request = b"HEAD / HTTP/1.0\r\n\r\n"
    answer = b"HTTP/1.1 "

    def __init__(self, **behaviour: Any) -> None:
        super().__init__(HlsBehaviour(**behaviour))
        # Made and removed here and not by the process, which may be killed.
        self._parts = tempfile.mkdtemp(prefix="hls-")
        self.folder = Path(self._parts)

    def close(self) -> None:
        """Stop and remove the segments."""
        super().close()
        shutil.rmtree(self._parts)


class TroubleProxy(Server):
    """Stands before another server and spoils what comes through."""

    program = "run_proxy"

    def __init__(self, server: Server, **behaviour: Any) -> None:
        super().__init__(ProxyBehaviour(target=server.port, **behaviour))
        self._server = server

    @property
    def url(self) -> str:
        """The other server's URL, through the proxy."""
        return self._server.url.replace(f":{self._server.port}/", f":{self.port}/", 1)
