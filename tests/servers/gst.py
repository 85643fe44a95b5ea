"""GStreamer in Debian's Python, and the camera that feeds its pipelines."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any

from .behaviour import CodedBehaviour
from .child import Child, Ticker, log
from .numbered import luma

__all__ = ["CAMERA", "Feed", "GLib", "Gst", "GstRtsp", "GstRtspServer"]

gi: Any = import_module("gi")  # no type stubs
for _name in ("Gst", "GstRtsp", "GstRtspServer"):
    gi.require_version(_name, "1.0")
GLib: Any = import_module("gi.repository.GLib")
Gst: Any = import_module("gi.repository.Gst")
GstRtsp: Any = import_module("gi.repository.GstRtsp")
GstRtspServer: Any = import_module("gi.repository.GstRtspServer")

CAMERA = (
    "appsrc name=frames is-live=true format=time do-timestamp=true"
    " max-buffers=4 max-bytes=0 leaky-type=downstream"
    " ! openh264enc bitrate=2000000 gop-size={gop} complexity=low"
    " ! video/x-h264,stream-format=byte-stream ! breakmydata name=damage ! h264parse"
)
"""The front of a pipeline: frames from a ``Feed``, as H.264 with a key frame each ``gop``."""


class Feed:
    """Pushes frames into the ``CAMERA`` in ``element`` from a thread of its own."""

    def __init__(self, child: Child[Any], element: Any) -> None:
        self._child = child
        self._gone = threading.Event()
        self._plays = threading.Event()
        self._source = element.get_by_name("frames")
        self._damage = element.get_by_name("damage")
        # A live source is asked for data once its pipeline plays. Frames that were queued before
        # that left the RTSP media blocked for good, about once in fifty starts on a busy machine.
        self._source.connect("need-data", lambda _source, _size: self._plays.set())
        threading.Thread(target=self._run, name="feed", daemon=True).start()

    def end(self) -> None:
        """No more frames."""
        self._gone.set()

    def _run(self) -> None:
        ticker = Ticker(self._child.epoch, self._child.now.fps)
        sent, shape, shown = 0, None, None
        while (number := ticker.wait(self._gone)) is not None:
            now: CodedBehaviour = self._child.now
            if now.stop_after is not None and sent >= now.stop_after:
                log(f"ending after {sent} frames")
                self._source.emit("end-of-stream")
                return
            if now.stalled or not self._plays.is_set():
                continue
            shown = number if shown is None or not now.still else shown
            if (size := now.size(sent)) != shape:
                self._source.set_property("caps", _caps(*size, now.fps))
                shape = size
            self._damage.set_property("probability", now.damage)
            self._source.emit("push-buffer", Gst.Buffer.new_wrapped(_i420(shown, *size)))
            sent += 1


def _caps(width: int, height: int, fps: float) -> Any:
    rate = f"{round(fps * 1000)}/1000"
    return Gst.Caps.from_string(
        f"video/x-raw,format=I420,width={width},height={height},framerate={rate}"
    )


def _i420(number: int, width: int, height: int) -> bytes:
    """Sizes must be multiples of 8, so that no row is padded."""
    return luma(number, width, height) + bytes((128,)) * (width * height // 2)
