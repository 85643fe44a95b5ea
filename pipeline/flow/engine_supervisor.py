"""The executor and ring in use, replaced when the engine fails in a row or hangs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.engines.executor import Executor
from pipeline.errors import Abandoned, ClosedError, DeviceError, EngineError
from pipeline.flow.backoff import Backoff
from pipeline.flow.events import State
from pipeline.memory.ring import Ring, Slot

if TYPE_CHECKING:
    from pipeline import _native

__all__ = ["EngineSettings", "EngineSupervisor"]

_log = logging.getLogger(__name__)

# How long closing waits for runs that were given up: they had their time already.
_HUNG_SECONDS = 1.0
# A hung run keeps its executor, with the whole model, until the engine lets go.
_MOST_HUNG = 3


@dataclass(frozen=True)
class EngineSettings:
    """``run_timeout_s``: a run that takes longer hangs. ``max_failures`` in a row: reopen it."""

    run_timeout_s: float = 30.0
    max_failures: int = 3
    backoff: Backoff = field(default_factory=lambda: Backoff(attempts=5))


class EngineSupervisor:
    """Hands out slots; replaces the whole executor when it must be.

    The one that is replaced goes on owning its memory: a hung run's buffers are not used again
    and are freed by their own thread when the engine lets go of them. ``input``, ``batch``,
    ``contexts`` and ``outputs`` (names) are those of the executor in use, once it is open.
    """

    input: _native.TensorSpec
    batch: int
    contexts: int
    outputs: tuple[str, ...]

    def __init__(
        self,
        make: Callable[[], Awaitable[tuple[Executor, Ring]]],
        settings: EngineSettings,
        report_state: Callable[[State, str], None],
    ) -> None:
        self.settings = settings
        self._make = make
        self._report_state = report_state
        self._pair: tuple[Executor, Ring] | None = None
        self._opening: asyncio.Future[tuple[Executor, Ring]] | None = None
        self._retired: list[tuple[Executor, Ring]] = []
        self._closers: list[asyncio.Task[None]] = []
        self._ready = asyncio.Event()
        self._failures = 0
        self._attempt = 0
        self._ready_at = 0  # driver allocations of the executor in use when its ring was ready
        self._grown = 0  # allocations after that, of those replaced
        self._worked = False
        self._last_error: EngineError | None = None
        self.closing = False
        self.hung = 0
        self.reopened = 0

    @property
    def executor(self) -> Executor:
        """The executor in use."""
        assert self._pair is not None, "not open"
        return self._pair[0]

    @property
    def ready(self) -> bool:
        """True while slots are handed out."""
        return self._ready.is_set()

    @property
    def ring(self) -> Ring | None:
        """The ring in use, once it is open."""
        return None if self._pair is None else self._pair[1]

    @property
    def allocations(self) -> tuple[int, int]:
        """Driver allocations when the ring was ready, and those and all later ones together."""
        if self._pair is None:
            return 0, 0
        later = self._pair[0].counters().allocations - self._ready_at
        return self._ready_at, self._ready_at + self._grown + later

    async def open(self) -> Executor:
        """Open the first executor and its ring."""
        self._adopt(await self._open())
        return self.executor

    async def _open(self) -> tuple[Executor, Ring]:
        # Neither loading a model nor allocating can be interrupted: when this is, that goes on.
        self._opening = asyncio.ensure_future(self._make())
        return await asyncio.shield(self._opening)

    async def acquire(self) -> tuple[Ring, Slot]:
        """A slot to fill, waiting while the engine is reopened."""
        while True:
            await self._ready.wait()
            assert self._pair is not None
            ring = self._pair[1]
            try:
                return ring, await ring.acquire()
            except ClosedError:
                if self._pair[1] is ring:
                    raise

    def succeeded(self) -> None:
        """A run came through."""
        self._failures = self._attempt = 0
        self._worked = True

    def check(self) -> None:
        """At the end: EngineError when runs were tried and not one came through."""
        if not self._worked and self._last_error is not None:
            raise self._last_error

    async def failed(self, ring: Ring, error: EngineError, *, hung: bool = False) -> None:
        """A run failed or hung; reopens the engine where that is due.

        That is after some failures in a row, and at once when it hung or its device was lost.
        EngineError when it was tried too often.
        """
        _log.warning("a run failed: %s", error, extra={"source": "engine"})
        if self._pair is None or ring is not self._pair[1]:
            return  # of one that was replaced already
        self._failures += 1
        self._last_error = error
        if hung:
            self.hung += 1
        lost = hung or isinstance(error, DeviceError)
        if lost or self._failures >= self.settings.max_failures:
            await self._replace(error)

    async def _replace(self, error: EngineError) -> None:
        backoff = self.settings.backoff
        self._report_state("failed", str(error))
        assert self._pair is not None
        self._ready.clear()
        self._retired.append(self._pair)
        self._closers.append(asyncio.ensure_future(self._close_when_free(self._pair)))
        if self.hung > _MOST_HUNG:
            raise EngineError(f"{error} (the engine hung {self.hung} times; given up)")
        while True:
            self._attempt += 1
            if backoff.attempts is not None and self._attempt > backoff.attempts:
                raise type(error)(f"{error} (given up after {backoff.attempts} attempts)")
            await asyncio.sleep(backoff.pause(self._attempt))
            try:
                pair = await self._open()
            except EngineError as again:
                error = again
                continue
            break
        ready_at, now = self.allocations
        self._grown += now - ready_at
        self.reopened += 1
        self._adopt(pair)
        self._report_state("reopened", "")

    def _adopt(self, pair: tuple[Executor, Ring]) -> None:
        self._pair = pair
        executor = pair[0]
        # Used for each frame; the binding would create a new list each time.
        self.input = executor.inputs[0]
        self.batch = self.input.shape[0] if self.input.shape else 1
        self.contexts = executor.contexts
        self.outputs = tuple(spec.name for spec in executor.outputs)
        self._ready_at = pair[0].counters().allocations
        self._failures = 0
        self._ready.set()

    async def _close_when_free(self, pair: tuple[Executor, Ring]) -> None:
        """Close a replaced executor as soon as the engine lets go of all its slots."""
        executor, ring = pair
        slots: list[Slot] = []
        try:
            while len(slots) < ring.depth:
                slots.append(await ring.acquire())
        except ClosedError:
            return  # at the end, when all are closed
        finally:
            for slot in slots:
                slot.release()
        await executor.close(_HUNG_SECONDS)
        self._retired.remove(pair)

    async def close(self, timeout: float) -> list[Abandoned]:
        """Close all within ``timeout`` s; the parts that hang."""
        self.closing = True
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        pairs = [*self._retired, *([self._pair] if self._pair is not None else [])]
        self._ready.set()
        stuck = []
        if self._opening is not None:
            share = timeout / 2 if pairs else timeout
            done, _ = await asyncio.wait({self._opening}, timeout=share)
            if not done:
                stuck.append(Abandoned(EngineError, "open-engine"))
                self._opening.add_done_callback(_look_at)
            elif self._opening.exception() is None and self._opening.result() not in pairs:
                pairs.append(self._opening.result())
        given_up = {executor for executor, _ in self._retired}
        timeout = until - loop.time()
        short = min(timeout, _HUNG_SECONDS)
        await asyncio.gather(
            *(executor.close(short if executor in given_up else timeout) for executor, _ in pairs)
        )
        # Arrays of the program that are left keep memory, too, but nothing hangs then.
        if self.ring is not None and self.ring.running:
            stuck.append(Abandoned(EngineError, "executor"))
        if any(ring.running for _, ring in self._retired if ring is not self.ring):
            stuck.append(Abandoned(None, "replaced-executor"))
        return stuck


def _look_at(opening: asyncio.Future[tuple[Executor, Ring]]) -> None:
    """Retrieve the exception of an abandoned opening, so that asyncio does not log it."""
    if not opening.cancelled():
        opening.exception()
