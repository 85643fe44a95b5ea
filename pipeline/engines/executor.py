"""A model on an engine: opened, given rings of slots, run and closed."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt

from pipeline import problems
from pipeline.engines import open_engine
from pipeline.engines.awaitable_context import AwaitableContext
from pipeline.engines.image import ImageInput
from pipeline.errors import ClosedError, ConfigError, DeviceError, SlotStateError
from pipeline.memory.ring import Ring, RunReport, Slot
from pipeline.paths import PACKAGE_SCHEME, resolve
from pipeline.worker import call_in_thread

if TYPE_CHECKING:
    from pipeline import _native
    from pipeline.engines.settings import ModelSettings

__all__ = ["Executor"]

_log = logging.getLogger(__name__)
_AS_CAPTURED = ImageInput()


class Executor:
    """A loaded model with its contexts; made by ``Executor.open``.

    Every context has a native thread that runs it and owns its driver memory.
    """

    def __init__(self, engine: _native.Engine, native: _native.Executor) -> None:
        self.engine = engine.name
        self.device = engine.device
        self._engine: _native.Engine | None = engine
        self._rebinds = engine.rebinds
        self._notes: dict[str, str] = {}
        self._native = native
        self._rings: list[Ring] = []
        self._closing: asyncio.Future[bool] | None = None

    def __del__(self) -> None:
        if self._closing is None:
            said = f"unclosed executor of {self.engine}"
            warnings.warn(said, ResourceWarning, stacklevel=2, source=self)

    @classmethod
    def open(
        cls,
        model: str | os.PathLike[str] | None = None,
        *,
        engine: str = "openvino",
        device: str | None = None,
        contexts: int | Literal["auto"] | None = None,
        aim: Literal["latency", "throughput"] | None = None,
        input_shape: Sequence[int] | None = None,
        library: str | os.PathLike[str] | None = None,
        options: Mapping[str, Any] | None = None,
        open_timeout_s: float | None = None,
        run_timeout_s: float | None = None,
        image: ImageInput | None = _AS_CAPTURED,
        memory_limit: int = 1 << 30,
    ) -> AwaitableContext[Executor]:
        """Load ``model``: await it, or use it as ``async with``.

        ``package://PACKAGE/path`` is a file inside an installed package. ``device`` to
        ``run_timeout_s`` are those of the YAML's ``model``, with its defaults. With ``image``
        an image-like input is u8 NHWC and conversions are folded into the graph; None leaves
        inputs as the model declares them. ``memory_limit`` bounds the driver memory of each
        tensor of each context, bytes. EngineError and its kinds when the engine, device or
        model fails.
        """
        given = {
            "path": None if model is None else _path_of(model),
            "device": device,
            "contexts": contexts,
            "aim": aim,
            "input_shape": input_shape,
            "library": None if library is None else os.fspath(library),
            "options": options,
            "open_timeout_s": open_timeout_s,
            "run_timeout_s": run_timeout_s,
        }
        chosen = _settings(engine, given)
        return AwaitableContext(lambda: cls.from_settings(chosen, image, memory_limit))

    @classmethod
    async def from_settings(
        cls,
        settings: ModelSettings,
        image: ImageInput | None = None,
        memory_limit: int = 1 << 30,
    ) -> Executor:
        """The same from checked settings."""

        def load() -> tuple[_native.Engine, _native.Executor]:
            from pipeline import _native

            engine = open_engine(settings, image)
            return engine, _native.Executor(
                engine, memory_limit=memory_limit, busy_timeout=settings.run_timeout_s
            )

        limit = settings.open_timeout_s
        try:
            opened = await asyncio.wait_for(call_in_thread("open-executor", load), limit)
        except TimeoutError:
            raise DeviceError(
                f"engine {settings.engine} did not open the model within {limit:g} s"
            ) from None
        executor = cls(*opened)
        precision = executor.notes().get("precision")
        in_precision = "" if precision is None else f" in {precision}"
        _log.info("%s on %s%s", executor.engine, executor.device, in_precision)
        return executor

    @property
    def inputs(self) -> Sequence[_native.TensorSpec]:
        """Input tensors, as the engine reports them."""
        return self._native.inputs

    @property
    def outputs(self) -> Sequence[_native.TensorSpec]:
        """Output tensors, as the engine reports them."""
        return self._native.outputs

    @property
    def contexts(self) -> int:
        """Number of contexts: runs at the same time."""
        return self._native.contexts

    def ring(self, depth: int = 4) -> AwaitableContext[Ring]:
        """A ring of ``depth`` slots, spread over the contexts: await it, or ``async with``.

        All its memory is allocated here; each slot is run once on zeros to see that the
        engine writes the outputs bound to it. AllocationError, ConfigError for the depth.
        """
        return AwaitableContext(lambda: self._open_ring(depth))

    async def _open_ring(self, depth: int) -> Ring:
        self._check_open()
        if not isinstance(depth, int) or isinstance(depth, bool):
            raise ConfigError(
                f"depth: {depth!r} is not a whole number; auto is for the pipeline's ring.depth"
            )
        if not 1 <= depth <= 1024:
            raise ConfigError(f"depth: {depth} is not between 1 and 1024")

        from pipeline import _native

        # Without `self`: the thread may keep what it was given a little longer than its caller.
        native = await call_in_thread(
            "open-ring", functools.partial(_native.Ring, self._native, depth)
        )
        ring = Ring(native, len(self.inputs), len(self.outputs))
        self._rings = [other for other in self._rings if not other.closed]
        self._rings.append(ring)
        return ring

    async def run(
        self,
        slot: Slot,
        inputs: Mapping[int, npt.NDArray[Any]] | None = None,
        outputs: Mapping[int, npt.NDArray[Any]] | None = None,
    ) -> RunReport:
        """Run a filled slot and wait for it.

        ``inputs`` and ``outputs`` map tensor indices to arrays used instead of the slot's
        own blocks: memory from ``allocate`` is bound as it is where the engine can, any other
        is copied; the report says which. Survives cancellation: the slot returns when the
        engine lets go. RunError when the engine fails, BindingError before the run when an
        array does not fit, SlotStateError for a slot of another executor.
        """
        if not slot._ring._belongs_to(self._native):
            raise SlotStateError(f"slot {slot.index}: it is no slot of this executor")
        return await slot.submit(inputs, outputs)

    def allocate(
        self, direction: _native.Direction, index: int, context: int = 0
    ) -> npt.NDArray[Any]:
        """Driver memory of one tensor as an array, for ``run`` to bind without a copy.

        It serves slots of the same ``context`` (``slot.context``) and goes back when the
        array and its slices are gone. Blocks while the context is in a run, so allocate before
        the first one, or by ``asyncio.to_thread``. AllocationError, BindingError for the index.
        """
        self._check_open()
        self._check_wait("allocate", context)
        return self._native.allocate(direction, index, context)

    def import_dmabuf(
        self, index: int, fd: int, *, offset: int = 0, context: int = 0
    ) -> npt.NDArray[Any]:
        """Input ``index`` in a dma-buf, such as a camera's, for ``run`` to bind without a copy.

        The image lies ``offset`` bytes into it, with the strides of the input. The descriptor
        stays the caller's and may be closed. It serves slots of the same ``context``, and blocks
        as ``allocate`` does.
        ConfigError where the engine, or the way it binds, cannot; AllocationError when the
        buffer is too small.
        """
        self._check_open()
        self._check_wait("import_dmabuf", context)
        return self._native.import_dmabuf(index, fd, offset, context)

    async def reshape(self, shape: Sequence[int]) -> None:
        """Change to another input shape that the model was made for, in order of the model.

        ``inputs`` and ``outputs`` show the new tensors. All slots must be free, with no view of
        them left: SlotStateError. The ring's blocks stay, but for those that are too small
        now. ConfigError where the engine's shapes are fixed, ModelError where the model has
        not this one; nothing has changed then.
        """
        self._check_open()
        rings = [ring for ring in self._rings if not ring.closed]
        if len(rings) > 1:
            raise SlotStateError("reshape: several rings are open on the executor")
        if rings:
            await rings[0]._reshape(shape)
        else:
            await call_in_thread("reshape", functools.partial(self._native.reshape, shape))

    def trim(self) -> None:
        """Give unused driver memory back; without this it is kept for the next use."""
        self._native.trim()

    def counters(self) -> _native.Counters:
        """Driver allocations, frees and what is live, over all tensors and contexts."""
        return self._native.counters()

    def zero_copy(self) -> dict[str, bool]:
        """True for each tensor that the engine uses in place. Blocks; see ``ring`` first."""
        return {
            name: self._native.zero_copy(direction, index)
            for name, direction, index in self._tensors()
        }

    def routes(self) -> dict[str, str]:
        """The same in words, with the way each tensor takes. Blocks; see ``ring`` first."""
        return {
            name: self._native.route(direction, index) for name, direction, index in self._tensors()
        }

    def _tensors(self) -> Iterator[tuple[str, _native.Direction, int]]:
        both: tuple[tuple[_native.Direction, Sequence[_native.TensorSpec]], ...] = (
            ("input", self.inputs),
            ("output", self.outputs),
        )
        for direction, specs in both:
            for index, spec in enumerate(specs):
                yield f"{direction} {index} {spec.name!r}", direction, index

    @property
    def rebinds(self) -> bool:
        """True if ``run`` binds memory from ``allocate``; else it copies it, like any other."""
        return self._rebinds

    def notes(self) -> dict[str, str]:
        """Remarks of the engine: how it binds memory, and what that costs."""
        return self._engine.notes if self._engine is not None else self._notes

    async def close(self, timeout: float = 5.0) -> bool:
        """Close the rings, free the driver memory and end the contexts' threads.

        False when a context still hangs in a run, or arrays over its memory live, after
        ``timeout`` seconds: all is then freed, by its own thread, once that is over.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(timeout))
        return await asyncio.shield(self._closing)

    async def _close(self, timeout: float) -> bool:
        for ring in self._rings:
            await ring.close()
        # The last who has the engine ends it: its threads, not the loop.
        self._notes, self._engine = self.notes(), None
        ended = await call_in_thread(
            "close-executor", functools.partial(self._native.close, timeout)
        )
        if not ended:
            # A program's last result is seldom dropped before the end: that is no news.
            running = any(ring.running for ring in self._rings)
            _log.log(
                logging.WARNING if running else logging.DEBUG,
                "executor closed, but %d blocks of driver memory are still in use by %s; "
                "they are freed when that is over",
                self._native.counters().live_blocks,
                "a run" if running else "arrays",
            )
        return ended

    def _check_wait(self, what: str, context: int) -> None:
        """Warn of what waits for a run on the event loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        if any(ring._running(context) for ring in self._rings):
            _log.warning(
                "%s holds up the event loop until the runs of context %d end; call it before the "
                "first run, or by asyncio.to_thread",
                what,
                context,
            )

    def _check_open(self) -> None:
        if self._closing is not None:
            raise ClosedError("executor: closed")


def _path_of(model: str | os.PathLike[str]) -> str:
    path = os.fspath(model)
    return resolve(path, Path()) if path.startswith(PACKAGE_SCHEME) else path


def _settings(engine: str, given: Mapping[str, Any]) -> ModelSettings:
    from pipeline.engines.settings import ModelSettings

    chosen = {name: value for name, value in given.items() if value is not None}
    return problems.validated(ModelSettings, {"engine": engine, **chosen})


Executor.__module__ = "pipeline"  # so that pickles survive moves
