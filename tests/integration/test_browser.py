"""An annotated clip plays in a browser."""

from __future__ import annotations

import functools
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from pipeline import Pipeline

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; see .ci/apt")

PAGE = """\
<video src="SOURCE" muted preload="auto"></video>
<script>
const video = document.querySelector("video");
const say = (text) => fetch("/said/" + encodeURIComponent(text));
video.onerror = () => say("failed: " + video.error.message);
video.onended = () => say(`ended ${video.videoWidth}x${video.videoHeight} ${video.duration} s`);
video.oncanplaythrough = () => video.play();
</script>
"""


class Site(ThreadingHTTPServer):
    """Serves a folder, and keeps the first word of the page."""

    def __init__(self, folder: Path) -> None:
        self.said: queue.Queue[str] = queue.Queue()
        super().__init__(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))


class _Handler(SimpleHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        if self.path.startswith("/said/"):
            self.server.said.put(unquote(self.path.removeprefix("/said/")))
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Requests are no news."""


@contextmanager
def served(site: Site) -> Iterator[None]:
    """Answer requests meanwhile."""
    thread = threading.Thread(target=site.serve_forever)
    thread.start()
    try:
        yield
    finally:
        site.shutdown()
        thread.join()


def clip(path: Path) -> None:
    """Two seconds of synthetic frames."""
    config = {
        "source": {"uri": "synthetic:", "width": 160, "height": 120, "frames": 50},
        "model": {"engine": "simulated", "input_shape": [1, 48, 64, 3]},
        "sinks": [{"kind": "video", "path": str(path), "fps": 25}],
    }
    Pipeline(config).run()


@pytest.mark.parametrize("ending", ["mp4", "m4v", "mov", "webm"])
def test_a_clip_plays_in_a_browser(tmp_path: Path, ending: str) -> None:
    clip(tmp_path / f"clip.{ending}")
    (tmp_path / "page.html").write_text(PAGE.replace("SOURCE", f"clip.{ending}"))
    assert CHROMIUM is not None
    with Site(tmp_path) as site, served(site):
        browser = subprocess.Popen(
            [
                CHROMIUM,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--autoplay-policy=no-user-gesture-required",
                f"--user-data-dir={tmp_path / 'profile'}",
                f"http://127.0.0.1:{site.server_port}/page.html",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert site.said.get(timeout=60) == "ended 160x120 2 s"
        finally:
            browser.terminate()
            browser.wait()
