"""What the HTTP servers share: who may ask, and when they begin to listen."""

from __future__ import annotations

import base64
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .behaviour import Behaviour
from .child import Child, log

__all__ = ["Handler", "serve"]


class Handler(BaseHTTPRequestHandler):
    """Asks for the password where one is set; ``give`` answers a request that may be answered."""

    protocol_version = "HTTP/1.1"
    child: Child[Any]

    def do_GET(self) -> None:
        """Answer, or ask for the password."""
        log(f"client {self.client_address[1]} asks for {self.path}")
        now: Behaviour = self.child.now
        secret = base64.b64encode(f"{now.user}:{now.password}".encode()).decode()
        if now.user and self.headers.get("Authorization") != f"Basic {secret}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="camera"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        try:
            self.give()
        except ConnectionError:
            log(f"client {self.client_address[1]} left")
            self.close_connection = True

    def do_HEAD(self) -> None:
        """Tell that the server is there."""
        self.send_response(204)
        self.end_headers()

    def give(self) -> None:
        """Send what was asked for."""
        raise NotImplementedError

    def refuse(self) -> None:
        """There is no such thing here."""
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - inherited name
        """Into the log of this server."""
        log(f"client {self.client_address[1]}: {format % arguments}")


def serve(child: Child[Any], handler: type[Handler]) -> None:
    """Listen when it is time, say so, and answer until the process ends."""
    handler.child = child
    child.wait_until_due()
    server = ThreadingHTTPServer(("127.0.0.1", child.now.port), handler)
    server.daemon_threads = True
    child.ready()
    server.serve_forever()
