"""The hostile cameras' process: all of them at once, each on a port of its own."""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack

from .hostile import ANSWER, RTSP, TLS, Answer, cut_http, cut_rtsp, http_answers
from .raw import RawServer, read_head

__all__: list[str] = []


def _asked(answer: Answer) -> Callable[[socket.socket], None]:
    def serve(link: socket.socket) -> None:
        if request := read_head(link):
            answer(link, request)

    return serve


def _main() -> None:
    """Print the URL of each; the end of standard input ends the process."""
    os.nice(10)  # what they send costs them more than us
    image = base64.b64decode(sys.argv[1])
    part = b"--frame\r\nContent-Length: %d\r\n\r\n%s\r\n" % (len(image), image)
    cameras = {f"http-{name}": _asked(answer) for name, answer in http_answers(image).items()}
    cameras |= {f"rtsp-{name}": serve for name, serve in RTSP.items()}
    cameras |= {f"https-{name}": serve for name, serve in TLS.items()}
    cameras |= {f"rtsps-{name}": serve for name, serve in TLS.items()}
    cameras |= {f"tcp-{name}": serve for name, serve in TLS.items()}
    step = int(sys.argv[2])
    cameras |= {"http-cut": cut_http(ANSWER + part * 2, step), "rtsp-cut": cut_rtsp(step)}
    with ExitStack() as stack:
        urls = {}
        for name, serve in cameras.items():
            port = stack.enter_context(RawServer(serve)).port
            urls[name] = f"{name.split('-')[0]}://u:topsecret@127.0.0.1:{port}/live"
        sys.stdout.write(json.dumps(urls) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
        os._exit(0)


if __name__ == "__main__":
    _main()
