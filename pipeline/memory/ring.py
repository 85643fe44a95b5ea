"""Slots of driver memory, awaited: the ring as the event loop sees it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from pipeline.errors import BindingError, ClosedError, SlotStateError
from pipeline.worker import call_in_thread

if TYPE_CHECKING:
    from pipeline import _native
    from pipeline.memory.frame import Image

__all__ = ["PreparedRun", "ResizeStep", "Ring", "RunReport", "Slot", "SlotInfo", "TensorViews"]

Array = npt.NDArray[Any]
_log = logging.getLogger(__name__)

# How long somebody waits for a slot before the log says what keeps them.
_PATIENCE_S = 1.0


class RunReport(NamedTuple):
    """Report of one run.

    For each tensor: ``slot`` (the slot's own block), ``bound`` (the caller's memory, zero
    copy) or ``copied`` (the caller's memory, through the slot's block). Times are monotonic
    nanoseconds of the engine's run itself, without waiting for its context.
    """

    inputs: tuple[_native.Route, ...]
    outputs: tuple[_native.Route, ...]
    started_ns: int
    finished_ns: int
    resize_ns: int = 0
    """Time that the engine's thread took to resize the frame before, if it did."""


class ResizeStep(NamedTuple):
    """Step of a run's thread that resizes a frame into the first input before the run.

    ``top`` and ``left`` say where in the input, in pixels; ``pad`` is what the input is filled
    with before, None where that was done.
    """

    resizer: _native.Resizer
    top: int
    left: int
    pad: int | None


class SlotInfo(NamedTuple):
    """State of a slot and the number of live views that keep it from being reused."""

    state: _native.SlotState
    views: int


class TensorViews(Sequence[Array]):
    """The inputs or outputs of a slot; each access makes a view that keeps the slot."""

    __slots__ = ("_count", "_slot", "_view")

    def __init__(self, slot: _native.Slot, direction: _native.Direction, count: int) -> None:
        self._slot = slot
        self._view = slot.input if direction == "input" else slot.output
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Array]: ...
    def __getitem__(self, index: int | slice) -> Array | Sequence[Array]:
        if isinstance(index, slice):
            return [self._view(i) for i in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"tensor {index}: there are {self._count}")
        return self._view(index % self._count)

    def __iter__(self) -> Iterator[Array]:
        return map(self._view, range(self._count))


class Slot:
    """One acquisition of a slot; leave the ``async with`` or call ``release`` once.

    ``inputs`` are writable until the run, ``outputs`` are read-only and there after it.
    The slot returns to the ring when it was released and no view of it is left.
    """

    __slots__ = ("_handle", "_ring", "inputs", "outputs")

    def __init__(self, ring: Ring, handle: _native.Slot, inputs: int, outputs: int) -> None:
        self._ring = ring
        self._handle = handle
        self.inputs = TensorViews(handle, "input", inputs)
        self.outputs = TensorViews(handle, "output", outputs)

    @property
    def index(self) -> int:
        """Place in the ring."""
        return self._handle.index

    @property
    def context(self) -> int:
        """Executor context whose memory this is."""
        return self._handle.context

    @property
    def state(self) -> _native.SlotState:
        """``free`` once it was released and is not needed any more."""
        return self._handle.state

    def release(self) -> None:
        """Give the slot back; a running one returns when the engine lets go of it."""
        self._handle.release()
        self._ring._forget(self._handle)

    def submit(
        self,
        inputs: Mapping[int, Array] | None = None,
        outputs: Mapping[int, Array] | None = None,
    ) -> asyncio.Future[RunReport]:
        """Start the run and return at once; the future has its report or its error.

        Raises BindingError before anything runs when an array does not fit, SlotStateError
        when the slot is not being filled. Cancelling the future does not stop the engine.
        """
        return self._ring._submit(self._handle, inputs, outputs)

    def prepare(self) -> PreparedRun:
        """A run on the slot's own blocks that is awaited here and started by another thread."""
        return self._ring._prepare(self._handle)


class PreparedRun:
    """A run to come: ``future`` is as that of ``submit``, and ``start`` is for any thread.

    Who cannot start it calls ``fail``, on the loop.
    """

    __slots__ = ("_frames", "_handle", "future")

    def __init__(
        self, handle: _native.Slot, future: asyncio.Future[RunReport], frames: dict[int, Image]
    ) -> None:
        self._handle = handle
        self._frames = frames
        self.future = future

    def start(self) -> None:
        """Start it and return at once. Raises what ``submit`` raises."""
        self._handle.submit(None, None)

    def start_resizing(self, step: ResizeStep, frame: Image) -> None:
        """Start it; its thread resizes ``frame`` into the first input before. On the loop.

        Raises BindingError when the resized frame does not fit.
        """
        resizer, top, left, pad = step
        self._handle.submit_resized(resizer, frame, top, left, pad)
        self._frames[self._handle.index] = frame

    def fail(self, error: BaseException) -> None:
        """End the run with this error, as it was not started."""
        _fail(self.future, error)


class _Acquire:
    """``async with ring.slot() as slot``."""

    __slots__ = ("_ring", "_slot")

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._slot: Slot | None = None

    async def __aenter__(self) -> Slot:
        self._slot = await self._ring.acquire()
        return self._slot

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._slot is not None
        with contextlib.suppress(SlotStateError):  # the body released it
            self._slot.release()


_Routes = tuple[tuple["_native.Route", ...], tuple["_native.Route", ...]]


class _Run(NamedTuple):
    handle: _native.Slot
    future: asyncio.Future[RunReport]
    routes: _Routes
    outputs: Mapping[int, Array]


class Ring:
    """A fixed set of slots on one executor. Made by ``Executor.ring``; belongs to one loop."""

    def __init__(self, native: _native.Ring, inputs: int, outputs: int) -> None:
        self._native = native
        self._counts = (inputs, outputs)
        own: tuple[_native.Route, ...] = ("slot",)
        self._own_routes: _Routes = (own * inputs, own * outputs)
        self._loop = asyncio.get_running_loop()
        self._waiters: deque[asyncio.Future[Slot]] = deque()
        self._runs: dict[tuple[int, int], _Run] = {}
        self._waiting_since = 0.0
        self._hint: asyncio.TimerHandle | None = None  # left running, as most waits are short
        # Frames that were drawn last: not freed while a thread may look at them.
        self._frames: dict[int, Image] = {}
        self._closed = False
        # Weakly: a ring that its program dropped must not live for as long as the loop.
        self._loop.add_reader(native.fileno(), _ready, weakref.ref(self))

    def __del__(self) -> None:
        if not self._closed and not self._loop.is_closed():
            self._loop.remove_reader(self._native.fileno())

    @property
    def depth(self) -> int:
        """Number of slots."""
        return self._native.depth

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return self._closed

    @property
    def running(self) -> int:
        """Number of slots that are with the engine, even of those released meanwhile."""
        return sum(slot.state == "submitted" for slot in self.slots())

    @property
    def starved(self) -> bool:
        """True while a slot has been waited for longer than a second, and views keep them all."""
        waits = any(not waiter.done() for waiter in list(self._waiters))
        since = self._loop.time() - self._waiting_since
        return waits and since >= _PATIENCE_S and _kept_by_views(self.slots())

    def slots(self) -> list[SlotInfo]:
        """State and live views of each slot; a forgotten view shows here."""
        return [SlotInfo(*state) for state in self._native.states()]

    def slot(self) -> _Acquire:
        """``async with ring.slot() as slot``: a slot to fill, given back at the end."""
        return _Acquire(self)

    async def acquire(self) -> Slot:
        """Wait for a free slot. ClosedError when the ring is or gets closed."""
        self._check_loop()
        if self._closed:
            raise ClosedError("ring: closed")
        if not self._waiters and (handle := self._native.try_acquire()) is not None:
            return Slot(self, handle, *self._counts)
        waiter: asyncio.Future[Slot] = self._loop.create_future()
        if not self._waiters:
            self._waiting_since = self._loop.time()
        self._waiters.append(waiter)
        if self._hint is None:
            self._hint = self._loop.call_later(_PATIENCE_S, self._look_for_views)
        self._native.want_free()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().release()
            raise

    def _belongs_to(self, executor: _native.Executor) -> bool:
        return self._native.executor is executor

    def _running(self, context: int) -> bool:
        """True while a run is on or waits on this context."""
        return self._native.running(context) > 0

    async def _reshape(self, shape: Sequence[int]) -> None:
        await call_in_thread("reshape", functools.partial(self._native.reshape, shape))

    async def close(self) -> None:
        """Refuse all further use. Memory that is running or viewed is freed when that is over."""
        if self._closed:
            return
        self._closed = True
        if self._hint is not None:
            self._hint.cancel()
        self._loop.remove_reader(self._native.fileno())
        self._native.close()
        for waiter in self._waiters:
            _fail(waiter, ClosedError("ring: closed while waiting for a slot"))
        for run in self._runs.values():
            _fail(run.future, ClosedError("ring: closed during the run"))
        self._waiters.clear()
        self._runs.clear()

    def _submit(
        self,
        handle: _native.Slot,
        inputs: Mapping[int, Array] | None,
        outputs: Mapping[int, Array] | None,
    ) -> asyncio.Future[RunReport]:
        self._check_loop()
        targets = _arrays("outputs", outputs)
        routes = handle.submit(_arrays("inputs", inputs), targets)
        future: asyncio.Future[RunReport] = self._loop.create_future()
        self._runs[handle.index, handle.generation] = _Run(handle, future, routes, targets or {})
        return future

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(f"ring: it belongs to another event loop, {self._loop!r}")

    def _prepare(self, handle: _native.Slot) -> PreparedRun:
        future: asyncio.Future[RunReport] = self._loop.create_future()
        # Before it is started: its end must find it.
        self._runs[handle.index, handle.generation] = _Run(handle, future, self._own_routes, {})
        return PreparedRun(handle, future, self._frames)

    def _on_ready(self) -> None:
        for index, generation, error in self._native.drain():
            run = self._runs.pop((index, generation), None)
            if run is not None:
                self._finish(run, error)
        self._serve()

    def _forget(self, handle: _native.Slot) -> None:
        """Forget the run of a released slot, and fail its future if it is still awaited."""
        run = self._runs.pop((handle.index, handle.generation), None)
        if run is not None:
            _fail(
                run.future,
                SlotStateError(f"slot {handle.index}: released while its run was awaited"),
            )

    def _finish(self, run: _Run, error: BaseException | None) -> None:
        if run.future.done():  # cancelled: the holder releases the slot
            return
        if error is not None:
            run.future.set_exception(error)
            return
        try:
            times = run.handle.lease()
            for index, array in run.outputs.items():
                if run.routes[1][index] == "copied":
                    run.handle.copy_output(index, array)
        except Exception as problem:
            run.future.set_exception(problem)
        else:
            run.future.set_result(RunReport(*run.routes, *times))

    def _serve(self) -> None:
        while self._waiters:
            if self._waiters[0].done():
                self._waiters.popleft()
                continue
            handle = self._native.try_acquire()
            if handle is None:
                self._native.want_free()
                return
            self._waiters.popleft().set_result(Slot(self, handle, *self._counts))

    def _look_for_views(self) -> None:
        self._hint = None
        if all(waiter.done() for waiter in self._waiters):
            return
        left = self._waiting_since + _PATIENCE_S - self._loop.time()
        if left <= 0:
            self._warn_of_views()
        else:
            self._hint = self._loop.call_later(left, self._look_for_views)

    def _warn_of_views(self) -> None:
        slots = self.slots()
        if _kept_by_views(slots):
            _log.warning(
                "waiting for a slot, but views keep all %d (%s): drop the arrays or copy them",
                len(slots),
                ", ".join(f"slot {i}: {slot.views}" for i, slot in enumerate(slots)),
            )


def _kept_by_views(slots: Sequence[SlotInfo]) -> bool:
    return all(slot.views > 0 and slot.state in ("leased", "done") for slot in slots)


def _ready(reference: weakref.ref[Ring]) -> None:
    if (ring := reference()) is not None:
        ring._on_ready()


def _arrays(name: str, given: Mapping[int, Array] | None) -> dict[int, Array] | None:
    for index, array in (given or {}).items():
        if not isinstance(index, int) or index < 0 or not isinstance(array, np.ndarray):
            raise BindingError(
                f"{name}: needed tensor indices and NumPy arrays, "
                f"got {index!r} and {type(array).__name__}"
            )
    return dict(given) if given else None


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # nobody may be waiting, which is no reason to complain in the log


for _public in (Ring, RunReport, Slot):
    _public.__module__ = "pipeline"  # so that pickles survive moves
