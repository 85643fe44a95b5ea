"""The spoiling proxy's process."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading

from .behaviour import ProxyBehaviour
from .child import Child, log

__all__: list[str] = []

_never = threading.Event()


def _forward(child: Child[ProxyBehaviour], client: socket.socket) -> None:
    """Both directions of one connection until either side closes it."""
    noise, passed = random.Random(1), 0
    with client, socket.create_connection(("127.0.0.1", child.now.target), 10) as server:
        while True:
            now = child.now
            watched = [client] if now.stalled else [client, server]
            readable = select.select(watched, [], [], 0.05)[0]
            if client in readable:
                if not (data := client.recv(65536)):
                    return
                server.sendall(data)
            if server in readable:
                rate = now.bytes_per_second
                if not (data := server.recv(65536 if rate is None else max(1, int(rate / 20)))):
                    return
                client.sendall(noise.randbytes(now.garbage) + data)
                passed += len(data)
                if now.cut_after is not None and passed >= now.cut_after:
                    log(f"cutting after {passed} bytes")
                    # Closing with this set sends a reset instead of an orderly end.
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                if rate is not None:
                    _never.wait(len(data) / rate)


def _serve(child: Child[ProxyBehaviour], client: socket.socket) -> None:
    log("client connected")
    with contextlib.suppress(OSError):
        _forward(child, client)
    log("client left")


def _main() -> None:
    child: Child[ProxyBehaviour] = Child(ProxyBehaviour)
    child.wait_until_due()
    with socket.create_server(("127.0.0.1", child.now.port)) as listening:
        child.ready()
        while True:
            client, _ = listening.accept()
            threading.Thread(target=_serve, args=(child, client), daemon=True).start()


if __name__ == "__main__":
    _main()
