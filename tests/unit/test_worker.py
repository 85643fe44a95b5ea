"""Threads of the stages: order, errors, cancelled calls, and ones that are stuck."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable

import pytest

from pipeline.worker import Worker, call_in_thread

Until = Callable[[Callable[[], bool]], Awaitable[None]]

pytestmark = [pytest.mark.both_loops, pytest.mark.usefixtures("no_leak")]


async def test_calls_run_in_order_on_one_thread_of_that_name() -> None:
    worker = Worker("part")
    seen: list[tuple[int, str, int]] = []

    def call(number: int, *, base: int) -> int:
        thread = threading.current_thread()
        seen.append((number, thread.name, threading.get_ident()))
        assert thread.daemon
        return base + number

    futures = [worker.submit(call, number, base=100) for number in range(20)]
    assert await asyncio.gather(*futures) == list(range(100, 120))
    assert [number for number, _, _ in seen] == list(range(20))
    assert {name for _, name, _ in seen} == {"part"}
    assert len({ident for _, _, ident in seen}) == 1
    assert seen[0][2] != threading.get_ident()
    assert await worker.close(30)


async def test_an_error_is_raised_where_the_call_is_awaited() -> None:
    worker = Worker("part")
    with pytest.raises(ZeroDivisionError):
        await worker.submit(lambda: 1 // 0)
    assert await worker.submit(lambda: "still there") == "still there"
    assert await worker.close(30)


async def test_even_the_errors_that_end_a_program_do_not_end_the_thread() -> None:
    worker = Worker("part")

    def leave() -> None:
        raise SystemExit(3)

    failed = worker.submit(leave)
    assert await worker.submit(lambda: 1) == 1
    assert isinstance(failed.exception(), SystemExit)
    assert await worker.close(30)


async def test_a_call_that_is_only_sent_tells_nothing_but_its_error() -> None:
    worker = Worker("part")
    told: list[BaseException] = []
    ran: list[int] = []
    worker.send(told.append, ran.append, 1)
    worker.send(told.append, lambda: 1 // 0)
    worker.send(told.append, ran.append, 2)
    await worker.submit(lambda: None)
    assert ran == [1, 2]
    assert [type(error) for error in told] == [ZeroDivisionError]
    assert await worker.close(30)


async def test_a_cancelled_call_is_skipped_when_it_has_not_begun(until: Until) -> None:
    worker = Worker("part")
    begun, free = threading.Event(), threading.Event()
    ran: list[str] = []

    def wait() -> None:
        begun.set()
        free.wait()

    running = worker.submit(wait)
    skipped = worker.submit(ran.append, "skipped")
    last = worker.submit(ran.append, "last")
    await until(begun.is_set)
    running.cancel()  # goes on, nobody waits for it
    skipped.cancel()
    free.set()
    await last
    assert ran == ["last"]
    assert await worker.close(30)


async def test_close_waits_for_what_is_queued() -> None:
    worker = Worker("part")
    done: list[int] = []
    for number in range(50):
        worker.submit(done.append, number)
    assert await worker.close(30)
    assert done == list(range(50))
    assert await worker.close(0)  # once more is no error
    with pytest.raises(RuntimeError, match="'part' is closing"):
        worker.submit(done.append, 0)


async def test_close_gives_up_on_a_stuck_call_which_may_still_end_alone(until: Until) -> None:
    worker = Worker("part")
    begun, free = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        free.wait()

    worker.submit(hang)
    await until(begun.is_set)
    assert not await worker.close(0)
    assert not await worker.close(0.01)
    free.set()
    assert await worker.close(30)


async def test_nothing_of_a_call_is_kept_until_the_next_one() -> None:
    class Thing:
        pass

    worker = Worker("part")
    thing = Thing()
    watched = weakref.ref(thing)
    assert await worker.submit(lambda given: given is not None, thing)
    del thing
    await worker.submit(lambda: None)
    gc.collect()
    assert watched() is None
    assert await worker.close(30)


async def test_call_in_thread() -> None:
    assert await call_in_thread("once", lambda: threading.current_thread().name) == "once"
    with pytest.raises(ZeroDivisionError):
        await call_in_thread("once", lambda: 1 // 0)


async def test_call_in_thread_can_be_cancelled_and_ends_alone(until: Until) -> None:
    begun, free, ended = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        free.wait()
        ended.set()

    calling = asyncio.ensure_future(call_in_thread("once", call))
    await until(begun.is_set)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    free.set()
    await until(ended.is_set)


def test_a_thread_may_outlive_its_loop() -> None:
    begun, free = threading.Event(), threading.Event()
    threads = []

    async def main() -> None:
        worker = Worker("late")

        def hang() -> None:
            threads.append(threading.current_thread())
            begun.set()
            free.wait()

        worker.submit(hang)
        worker.end()
        assert begun.wait(30)

    asyncio.run(main())
    free.set()
    threads[0].join(30)
    assert not threads[0].is_alive()
