"""Ultralytics: its loader and predictor, with its OpenVINO backend running our model.

The predictor reads ahead on a thread while the backend infers, which it does with one request and
the latency hint; there is no setting for more. Its preprocessing makes float32 of the image, so
it is given the model without preprocessing in the graph; it stretches images when told so. The
backend cannot be told the precision, so that alone is put in from here. Its own postprocess (for
YOLO) is replaced by the common one, and no ``Results`` are made, which only saves it time.
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openvino

if TYPE_CHECKING:
    from tests.benchmarks.peers.common import Job

__all__ = ["run"]

_METADATA = """
task: detect
stride: 32
batch: 1
channels: 3
imgsz: [{side}, {side}]
names: {{0: thing}}
args: {{dynamic: false}}
"""


def run(job: Job) -> None:
    """Stream the file through the predictor."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(YOLO_CONFIG_DIR=folder, YOLO_OFFLINE="true", YOLO_AUTOINSTALL="false")
        os.environ["YOLO_VERBOSE"] = "false"
        _compute_in(job.properties())
        model = _exported(job, Path(folder))
        predictor = _predictor(job)(
            overrides={
                "model": str(model),
                "mode": "predict",
                "batch": 1,
                "imgsz": job.side,
                "device": "cpu",
                "save": False,
                "verbose": False,
                "project": folder,
            }
        )
        for _ in predictor(source=job.clip, stream=True):
            pass


def _compute_in(properties: dict[str, Any]) -> None:
    whole = openvino.Core.compile_model

    def compile_model(self: Any, *arguments: Any, config: Any = None, **more: Any) -> Any:
        return whole(self, *arguments, config={**(config or {}), **properties}, **more)

    openvino.Core.compile_model = compile_model


def _exported(job: Job, folder: Path) -> Path:
    """The model where the backend looks for an export of its own."""
    made = folder / f"{job.model_name}_openvino_model"
    made.mkdir()
    given = Path(job.model(in_graph=False))
    for suffix in (".xml", ".bin"):
        shutil.copy(given.with_suffix(suffix), made)
    (made / "metadata.yaml").write_text(_METADATA.format(side=job.side))
    return made


def _predictor(job: Job) -> Any:
    base = importlib.import_module("ultralytics.engine.predictor").BasePredictor
    names = ["boxes", "scores"] if job.model_name == "det" else ["features"]

    class Nothing:
        """A result that takes the times which the predictor notes in it."""

    def postprocess(self: Any, preds: Any, img: Any, orig_imgs: Any) -> list[Nothing]:
        found = preds if isinstance(preds, list | tuple) else [preds]
        job.finish({name: one.numpy() for name, one in zip(names, found, strict=True)})
        return [Nothing()]

    # scale_fill: images are stretched.
    return type("Predictor", (base,), {"scale_fill": True, "postprocess": postprocess})
