"""What tests share: a film, both ways to read one, and a configuration in an empty folder."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from pipeline.config.loading import Config, load
from pipeline.memory.frame import Image
from tests.unit.playing import CLIP


def index_first(path: str) -> bytes:
    """The same MP4 with its index before its data, so that a cut one can still be opened."""
    data = Path(path).read_bytes()
    boxes: list[tuple[bytes, bytes]] = []
    at = 0
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        boxes.append((kind, data[at : at + length]))
        at += length
    (moov,) = (bytearray(body) for kind, body in boxes if kind == b"moov")
    table = moov.index(b"stco") + 8
    (count,) = struct.unpack_from(">I", moov, table)
    for entry in range(table + 4, table + 4 + 4 * count, 4):
        (offset,) = struct.unpack_from(">I", moov, entry)
        struct.pack_into(">I", moov, entry, offset + len(moov))
    others = [body for kind, body in boxes if kind != b"moov"]
    return others[0] + bytes(moov) + b"".join(others[1:])


@pytest.fixture(scope="module")
def streamable() -> bytes:
    return index_first(CLIP)


@pytest.fixture(scope="module")
def decoded() -> list[Image]:
    capture = cv2.VideoCapture(CLIP)
    frames: list[Image] = []
    while True:
        ok, image = capture.read()
        if not ok:
            return frames
        frames.append(np.asarray(image, np.uint8))


@pytest.fixture(params=["pyav", "opencv"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Files are read by PyAV as planes where they can be, else by OpenCV as BGR."""
    if request.param == "opencv":
        monkeypatch.setattr("pipeline.sources.file._movie", lambda *_: None)
    else:
        monkeypatch.setattr("pipeline.sources.pyav_frames.LEAST_PIXELS", 0)
    return str(request.param)


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Config]:
    """Load a text as camera.yaml, beside a clip.mp4 and a model.onnx."""
    monkeypatch.chdir(tmp_path)
    for name in ("clip.mp4", "model.onnx"):
        (tmp_path / name).write_bytes(b"x")

    def load_text(text: str | bytes, *overrides: str, sinks: Any = ()) -> Config:
        data = text if isinstance(text, bytes) else text.encode()
        (tmp_path / "camera.yaml").write_bytes(data)
        return load("camera.yaml", overrides, sinks)

    return load_text


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for 127.0.0.1, and its key: the names of their files."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    made, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subject = ["-subj", "/CN=camera", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject]
    subprocess.run(
        [*command, "-keyout", key, "-out", made, "-days", "2"], check=True, capture_output=True
    )
    return made, key
