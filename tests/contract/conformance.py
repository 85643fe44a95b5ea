"""Runs and comparisons that the conformance suite, ``test_engine_*.py``, is written with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline import Executor, Ring, Slot

if TYPE_CHECKING:
    from tests.contract.engines import EngineCase

__all__ = [
    "CONTEXTS",
    "DEPTH",
    "Array",
    "address",
    "assert_same",
    "compute",
    "data",
    "fill",
    "prefilled",
]

Array = npt.NDArray[Any]
DEPTH = 3
CONTEXTS = 2


def data(executor: Executor, seed: int) -> list[Array]:
    """An array for each input, different for each seed."""
    random = np.random.default_rng(seed)
    return [
        random.integers(0, 256, spec.shape).astype(spec.dtype, order="C")
        for spec in executor.inputs
    ]


def fill(slot: Slot, arrays: list[Array]) -> None:
    for index, array in enumerate(arrays):
        slot.inputs[index][...] = array


def prefilled(executor: Executor, context: int) -> list[Array]:
    """Memory of the executor for every output, with a pattern in it."""
    outputs = [
        executor.allocate("output", index, context) for index in range(len(executor.outputs))
    ]
    for array in outputs:
        array.view(np.uint8)[...] = 0x5A
    return outputs


async def compute(executor: Executor, ring: Ring, arrays: list[Array]) -> list[Array]:
    """One run on the slot's own memory; copies of the outputs."""
    async with ring.slot() as slot:
        fill(slot, arrays)
        report = await executor.run(slot)
        assert report.inputs == ("slot",) * len(executor.inputs)
        assert report.outputs == ("slot",) * len(executor.outputs)
        assert 0 < report.started_ns <= report.finished_ns
        return [view.copy() for view in slot.outputs]


def assert_same(case: EngineCase, given: list[Array], wanted: list[Array]) -> None:
    assert len(given) == len(wanted)
    for one, other in zip(given, wanted, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        largest = float(np.abs(other.astype(np.float64)).max(initial=0))
        np.testing.assert_allclose(one, other, rtol=0, atol=case.tolerance * largest)


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
