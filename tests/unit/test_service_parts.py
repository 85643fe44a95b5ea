"""Events, turns, pauses, logs and the word to systemd, each by itself."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from pathlib import Path

import pytest

from pipeline.flow.backoff import Backoff
from pipeline.flow.channel import Channel, ChannelClosed
from pipeline.flow.events import Event, EventHub, EventLog, EventStream
from pipeline.flow.fair_share import FairShare
from pipeline.service.logs import JsonFormatter, KeyValueFormatter, RateLimit
from pipeline.service.systemd import notify, watchdog_seconds

# Events.


def event(number: int) -> Event:
    return Event("door", "live", str(number), number)


async def taken(stream: EventStream) -> list[int]:
    return [event.at_ns async for event in stream]


async def test_every_listener_gets_all_events_and_those_before_it() -> None:
    hub = EventHub()
    first = hub.stream()
    hub.send(event(0))
    hub.send(event(1))
    second = hub.stream()
    waiting = asyncio.ensure_future(taken(first))
    await asyncio.sleep(0)
    hub.send(event(2))
    hub.close()
    assert await waiting == [0, 1, 2]
    assert await taken(second) == [0, 1, 2]
    assert await taken(hub.stream()) == [0, 1, 2]


async def test_a_listener_who_sleeps_keeps_the_newest_and_fills_no_memory() -> None:
    hub = EventHub()
    stream = hub.stream()
    for number in range(1000):
        hub.send(event(number))
    hub.close()
    assert await taken(stream) == list(range(1000 - 256, 1000))


# Turns.


async def fed(weights: dict[str, float], waiting: int) -> tuple[FairShare[str], list[Channel[str]]]:
    selector: FairShare[str] = FairShare()
    channels = []
    for name, weight in weights.items():
        channel: Channel[str] = Channel(waiting, "block", lambda item, cause: None)
        selector.add(name, channel, weight)
        for _ in range(waiting):
            await channel.put(name)
        channel.close()
        channels.append(channel)
    selector.close()
    return selector, channels


async def test_turns_are_taken_by_weight() -> None:
    selector, _ = await fed({"a": 1, "b": 2, "c": 1}, 40)
    order = [await selector.get() for _ in range(40)]
    assert {name: order.count(name) for name in "abc"} == {"a": 10, "b": 20, "c": 10}
    assert "b" in order[:2]
    assert {*order[:4]} == {"a", "b", "c"}  # none waits long


async def test_a_camera_that_was_silent_does_not_catch_up() -> None:
    selector: FairShare[str] = FairShare()
    busy: Channel[str] = Channel(64, "block", lambda item, cause: None)
    silent: Channel[str] = Channel(64, "block", lambda item, cause: None)
    selector.add("busy", busy)
    selector.add("silent", silent)
    for _ in range(30):
        await busy.put("busy")
    for _ in range(20):
        assert await selector.get() == "busy"
    for _ in range(10):
        await silent.put("silent")
    order = [await selector.get() for _ in range(10)]
    assert order.count("silent") <= 6


async def test_it_ends_with_the_last_camera_and_waits_for_a_new_one() -> None:
    selector, _ = await fed({"a": 1}, 1)
    assert await selector.get() == "a"
    with pytest.raises(ChannelClosed):
        await selector.get()
    open_ended: FairShare[str] = FairShare()
    waiting = asyncio.ensure_future(open_ended.get())
    await asyncio.sleep(0)
    channel: Channel[str] = Channel(1, "block", lambda item, cause: None)
    open_ended.add("late", channel)
    await channel.put("late")
    assert await waiting == "late"
    open_ended.remove("late")
    assert open_ended.take() is None


# Pauses.


def test_pauses_double_up_to_the_longest_and_differ() -> None:
    plain = Backoff(0.5, 8.0, 0.0)
    assert [plain.pause(attempt) for attempt in range(1, 8)] == [0.5, 1, 2, 4, 8, 8, 8]
    assert plain.pause(10_000) == 8  # no overflow for a camera that is away for a year
    spread = Backoff(1.0, 60.0, 0.25)
    pauses = [spread.pause(1) for _ in range(200)]
    assert all(0.75 <= pause <= 1.25 for pause in pauses)
    assert max(pauses) - min(pauses) > 0.2


# Logs.


def record(text: str, *values: object, source: str = "door", **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("pipeline.x", logging.WARNING, "", 0, text, values, None)
    vars(made).update(extra, source=source)
    return made


def test_log_lines_have_fields_and_no_secrets() -> None:
    made = record("%s is lost", "rtsp://me:secret@host/x", state="lost", why="no route to it")
    line = KeyValueFormatter().format(made)
    assert line == (
        'warning: rtsp://***@host/x is lost state=lost why="no route to it" source=door'
    )
    told = json.loads(JsonFormatter().format(made))
    assert told.pop("time") > 0
    assert told == {
        "level": "warning",
        "logger": "pipeline.x",
        "message": "rtsp://***@host/x is lost",
        "state": "lost",
        "why": "no route to it",
        "source": "door",
    }


def test_many_lines_of_one_kind_become_few_and_the_number_is_told() -> None:
    now = [0.0]
    limit = RateLimit(burst=2, seconds=10, now=lambda: now[0])
    passed = [limit.filter(record("lost %d", number)) for number in range(5)]
    assert passed == [True, True, False, False, False]
    assert limit.filter(record("lost %d", 1, source="gate"))  # another camera is another kind
    now[0] = 10.0
    later = record("lost %d", 6)
    assert limit.filter(later)
    assert vars(later)["left_out"] == 3


def test_texts_without_number_fill_no_memory() -> None:
    limit = RateLimit(burst=1, seconds=10, now=lambda: 0.0)
    for number in range(1000):
        assert limit.filter(record(f"lost {number}"))
        limit.filter(record("lost by all"))
    assert not limit.filter(record("lost by all"))
    assert not limit.filter(record("lost 999"))
    assert limit.filter(record("lost 0"))  # long forgotten


# systemd.


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        if abstract:
            receiver.bind("")  # the kernel chooses a name
            name = "@" + receiver.getsockname()[1:].decode()
        else:
            name = str(tmp_path / "notify")
            receiver.bind(name)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        assert notify("READY=1")
        assert receiver.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "nonsense", "/nowhere/at/all"])
def test_nobody_is_told_where_there_is_no_systemd(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not notify("READY=1")


@pytest.mark.parametrize(
    ("microseconds", "pid", "wanted"),
    [("3000000", None, 1.5), ("3000000", "1", None), ("", None, None), ("x", None, None)],
)
def test_the_watchdog_is_fed_twice_as_often_as_needed(
    monkeypatch: pytest.MonkeyPatch, microseconds: str, pid: str | None, wanted: float | None
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", microseconds)
    if pid is None:
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
    else:
        monkeypatch.setenv("WATCHDOG_PID", pid)
    assert watchdog_seconds() == wanted


# What a program that awaits no events is told.


def test_trouble_and_its_end_are_logged_by_the_library(caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog()
    caplog.set_level(logging.INFO, "pipeline")
    for state in ("connecting", "live", "lost", "connecting", "live", "ended"):
        log.record(Event("door", state, "cut" if state == "lost" else "", 0))
    assert [(made.levelname, made.getMessage()) for made in caplog.records] == [
        ("WARNING", "door: lost: cut"),
        ("INFO", "door: live"),
    ]


def test_a_camera_s_new_format_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog()
    caplog.set_level(logging.INFO, "pipeline")
    log.record(Event("door", "connecting", "", 0))
    log.record(Event("door", "live", "64x48", 0))
    log.record(Event("door", "live", "now 32x24", 0))
    assert [made.getMessage() for made in caplog.records] == ["door: live: now 32x24"]


def test_trouble_again_and_again_is_logged_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog()
    caplog.set_level(logging.INFO, "pipeline")
    for number in range(100):
        log.record(Event("door", "lost", str(number), number * 1_000_000_000))
    assert len(caplog.records) == 50  # five in each ten seconds
    caplog.set_level(logging.DEBUG, "pipeline")
    log.record(Event("door", "lost", "at last", 99_000_000_001))
    assert caplog.records[-1].levelno == logging.DEBUG
