"""Images out of a GStreamer pipeline whose appsink is named ``images``."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

__all__ = ["images"]


def images(description: str) -> Iterator[npt.NDArray[np.uint8]]:
    """Play it; each image's bytes, valid until the next one is asked for."""
    gi = importlib.import_module("gi")
    gi.require_version("Gst", "1.0")
    gi.require_version("GstApp", "1.0")
    gst = importlib.import_module("gi.repository.Gst")
    importlib.import_module("gi.repository.GstApp")  # gives appsink its methods
    gst.init(None)
    pipeline = gst.parse_launch(description)
    sink = pipeline.get_by_name("images")
    pipeline.set_state(gst.State.PLAYING)
    while (sample := sink.pull_sample()) is not None:
        buffer = sample.get_buffer()
        good, mapped = buffer.map(gst.MapFlags.READ)
        assert good
        yield np.frombuffer(mapped.data, np.uint8)
        buffer.unmap(mapped)
    pipeline.set_state(gst.State.NULL)
