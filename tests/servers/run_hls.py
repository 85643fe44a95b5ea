"""The HLS server's process, on GStreamer, in a folder of its own and in Debian's Python."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from .behaviour import HlsBehaviour
from .child import Child
from .gst import CAMERA, Feed, Gst
from .web import Handler, serve

__all__: list[str] = []

_PLAYLIST = "live.m3u8"
_KINDS = {".m3u8": "application/vnd.apple.mpegurl", ".ts": "video/mp2t"}


class _Folder(Handler):
    child: Child[HlsBehaviour]

    def give(self) -> None:
        """The playlist of this moment, or a segment."""
        path = Path(self.path.lstrip("/"))
        try:
            data = Path(path.name).read_bytes()
            kind = _KINDS[path.suffix]
        except (OSError, KeyError):
            self.refuse()
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _main() -> None:
    Gst.init(None)
    child: Child[HlsBehaviour] = Child(HlsBehaviour)
    for old in [*Path().glob("*.ts"), *Path().glob(_PLAYLIST)]:
        old.unlink()  # of the process before a restart
    window = child.now.window
    camera = CAMERA.format(gop=max(1, round(child.now.fps)))
    pipeline = Gst.parse_launch(
        f"{camera} ! hlssink2 target-duration=1 playlist-length={window} max-files={window + 4}"
        f" location=part%05d.ts playlist-location={_PLAYLIST}"
    )
    # The camera asks for frames once, as soon as it plays: who feeds it must listen by then.
    Feed(child, pipeline)
    pipeline.set_state(Gst.State.PLAYING)
    deadline = time.monotonic() + 20
    while not Path(_PLAYLIST).exists():  # written with the first segment
        if time.monotonic() > deadline:
            raise SystemExit("GStreamer wrote no playlist")
        threading.Event().wait(0.02)
    serve(child, _Folder)


if __name__ == "__main__":
    _main()
