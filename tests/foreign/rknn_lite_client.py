"""Runs a model by rknn-toolkit-lite2 and prints, as JSON, what came of it.

For the aarch64 Python that test_rknn_lite.py starts: needs numpy, the toolkit and the stand-in's
Python files on its path, and /usr/lib/librknnrt.so.

    python rknn_lite_client.py PRESET MODEL_FILE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from make_model import PRESETS
from rknnlite.api import RKNNLite
from standin import Standin

__all__ = ["main"]

LIBRARY = "/usr/lib/librknnrt.so"
FRAMES = 5


def main(preset: str, path: Path) -> None:
    """Whether each frame's outputs are numpy's, and what the stand-in counted."""
    model = PRESETS[preset](None)
    model.save(path)
    standin = Standin(LIBRARY)
    client = RKNNLite()
    report: dict[str, Any] = {"load": client.load_rknn(str(path))}
    report["init"] = client.init_runtime(core_mask=RKNNLite.NPU_CORE_0)
    report["equal"] = []
    rng = np.random.default_rng(0)
    for _ in range(FRAMES):
        values = [rng.integers(0, 256, t.shapes[0], np.uint8) for t in model.inputs]
        rows = [np.ascontiguousarray(v.transpose(0, 2, 3, 1)) for v in values]
        outputs = client.inference(rows, data_format=["nhwc"] * len(rows))
        wanted = model.real(model.run(values))
        pairs = zip(outputs or [], wanted, strict=True)
        report["equal"].append([bool(np.array_equal(got, want)) for got, want in pairs])
    client.release()
    report["stats"] = standin.stats()
    report["last_misuse"] = standin.last_misuse()
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
