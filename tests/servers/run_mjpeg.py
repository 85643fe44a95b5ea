"""The MJPEG server's process."""

from __future__ import annotations

import random
import select
import threading

import cv2
import numpy as np

from .behaviour import MjpegBehaviour
from .child import Child, Ticker, log
from .numbered import luma
from .web import Handler, serve

__all__: list[str] = []

_BOUNDARY = b"frame"
_never = threading.Event()


def _jpeg(number: int, width: int, height: int) -> bytes:
    grey = np.frombuffer(luma(number, width, height), np.uint8).reshape(height, width)
    ok, data = cv2.imencode(".jpg", cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR))
    assert ok
    return data.tobytes()


class _Camera(Handler):
    child: Child[MjpegBehaviour]

    def give(self) -> None:
        """Frames until the client leaves or the stream ends."""
        if self.path != "/video.mjpg":
            self.refuse()
            return
        self.close_connection = True
        self.send_response(200)
        self.send_header(
            "Content-Type", f"multipart/x-mixed-replace; boundary={_BOUNDARY.decode()}"
        )
        self.end_headers()
        ticker = Ticker(self.child.epoch, self.child.now.fps)
        noise = random.Random(1)
        sent, shown = 0, None
        while (number := ticker.wait(_never)) is not None:
            now = self.child.now
            if now.stop_after is not None and sent >= now.stop_after:
                log(f"client {self.client_address[1]}: closing after {sent} frames")
                return
            if now.stalled:
                self._hold()
                continue
            shown = number if shown is None or not now.still else shown
            self._send(noise.randbytes(now.garbage))
            self._part(_jpeg(shown, *now.size(sent)), broken=now.freeze_after == sent)
            sent += 1

    def _part(self, data: bytes, *, broken: bool) -> None:
        length = b"Content-Length: %d\r\n" % len(data) if self.child.now.lengths else b""
        self._send(b"--%s\r\nContent-Type: image/jpeg\r\n%s\r\n" % (_BOUNDARY, length))
        if broken:
            half = len(data) // 2
            self._send(data[:half])
            log(f"client {self.client_address[1]}: frozen in the middle of a frame")
            while self.child.now.freeze_after is not None:
                self._hold()
            data = data[half:]
        self._send(data + b"\r\n")

    def _hold(self) -> None:
        """Send nothing for a moment; ConnectionError when the client left."""
        if select.select([self.connection], [], [], 0.05)[0] and not self.connection.recv(1024):
            raise ConnectionError

    def _send(self, data: bytes) -> None:
        """All of it, at the set pace."""
        while data:
            rate = self.child.now.bytes_per_second
            size = len(data) if rate is None else max(1, int(rate / 20))
            self.wfile.write(data[:size])
            data = data[size:]
            if rate is not None:
                _never.wait(size / rate)


if __name__ == "__main__":
    serve(Child(MjpegBehaviour), _Camera)
