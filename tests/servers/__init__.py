"""Real servers for tests: RTSP, MJPEG over HTTP, HLS, and a proxy that spoils any of them.

Each is a child process on a loopback port of its own. Only the standard library is imported
here, since the RTSP server runs in the interpreter that has the GStreamer bindings.
"""

from __future__ import annotations

from .behaviour import HlsBehaviour, MjpegBehaviour, ProxyBehaviour, RtspBehaviour
from .numbered import read_number
from .process import Server, ServerError
from .servers import HlsServer, MjpegServer, RtspServer, TroubleProxy, gstreamer_missing

__all__ = [
    "HlsBehaviour",
    "HlsServer",
    "MjpegBehaviour",
    "MjpegServer",
    "ProxyBehaviour",
    "RtspBehaviour",
    "RtspServer",
    "Server",
    "ServerError",
    "TroubleProxy",
    "gstreamer_missing",
    "read_number",
]
