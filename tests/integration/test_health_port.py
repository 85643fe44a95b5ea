"""The health port with odd, slow and many clients; what they cost and what is said of them."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import socket
import struct
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from pipeline import ConfigError, Pipeline
from pipeline.service.service import Service
from tests.integration.complaints import config, results, running, synthetic
from tests.waiting import until as until_true

pytestmark = pytest.mark.usefixtures("no_leak")

CAMERAS = config(cameras={"front": synthetic(fps=100), "rear": synthetic(fps=100)})


def address(service: Service) -> tuple[str, int]:
    assert service._server is not None
    return service._host, service._server.port


def ask(where: tuple[str, int], request: bytes) -> str:
    with socket.create_connection(where, 30) as client:
        client.sendall(request)
        answer = b""
        while data := client.recv(65536):
            answer += data
    return answer.decode()


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /healthz?now HTTP/1.0\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET http://x/healthz HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"OPTIONS * HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\xff\r\n\r\n", 400),
        (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /healthz HTTP/1.1\r\n" + b"Name: value\r\n" * 3000 + b"\r\n", 431),
    ],
)
async def test_each_request_gets_its_answer(request_text: bytes, status: int) -> None:
    async with running(CAMERAS) as pipe, Service(pipe, port=0) as service:
        answer = await asyncio.to_thread(ask, address(service), request_text)
    assert answer.startswith(f"HTTP/1.1 {status} ")


async def test_head_is_get_without_the_body() -> None:
    async with running(CAMERAS) as pipe, Service(pipe, port=0) as service:
        got = await asyncio.to_thread(ask, address(service), b"GET /healthz HTTP/1.1\r\n\r\n")
        head = await asyncio.to_thread(ask, address(service), b"HEAD /healthz HTTP/1.1\r\n\r\n")
    assert head == got.partition("\r\n\r\n")[0] + "\r\n\r\n"
    assert json.loads(got.partition("\r\n\r\n")[2]) == {"ok": True, "problems": []}


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
async def test_it_listens_on_ipv6(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pipeline.service.service")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    async with running(CAMERAS) as pipe, Service(pipe, host="::1", port=0) as service:
        answer = await asyncio.to_thread(ask, address(service), b"GET /healthz HTTP/1.1\r\n\r\n")
        assert answer.startswith("HTTP/1.1 200 ")
        assert f"http://[::1]:{address(service)[1]}/healthz" in caplog.text


@pytest.mark.parametrize("host", ["", "256.1.1.1", "no.such.host.invalid", "192.0.2.1"])
async def test_an_address_that_cannot_be_listened_on_is_refused(host: str) -> None:
    async with running(CAMERAS) as pipe:
        with pytest.raises(ConfigError, match="--health") as caught:
            async with Service(pipe, host=host, port=0):
                pass
    assert "Errno" not in str(caught.value)


async def test_a_name_is_resolved_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    usual = socket.getaddrinfo

    def watched(*arguments: Any, **options: Any) -> Any:
        asked.append(threading.current_thread().name)
        return usual(*arguments, **options)

    async with running(CAMERAS) as pipe:
        monkeypatch.setattr(socket, "getaddrinfo", watched)
        async with Service(pipe, host="localhost", port=0):
            pass
    assert asked == ["resolve"]


def threads() -> int:
    return threading.active_count()


@contextmanager
def half_sent(where: tuple[str, int], count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(where, 30)) for _ in range(count)]
        for client in clients:
            client.sendall(b"GET /hea")
        yield clients


async def test_half_sent_requests_are_closed_and_cost_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.service.health._REQUEST_SECONDS", 0.5)

    def crowd(where: tuple[str, int]) -> None:
        with half_sent(where, 200) as clients:
            for client in clients:
                with suppress(ConnectionResetError):  # one too many, closed while it wrote
                    assert client.recv(100) == b""

    async with running(CAMERAS) as pipe, Service(pipe, port=0) as service:
        before = threads()
        working = asyncio.ensure_future(asyncio.to_thread(crowd, address(service)))
        while not working.done():
            assert threads() <= before + 2  # that of the crowd
            await asyncio.sleep(0.05)
        await working
        answer = await asyncio.to_thread(ask, address(service), b"GET /healthz HTTP/1.1\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200 ")


async def test_clients_that_reset_leave_no_traceback(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    def reset(where: tuple[str, int], request: bytes) -> None:
        client = socket.create_connection(where, 30)
        client.sendall(request)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    async with running(CAMERAS) as pipe, Service(pipe, port=0) as service:
        for request in [b"GET /metrics HTTP/1.1\r\n\r\n", b"GET /met"] * 10:
            await asyncio.to_thread(reset, address(service), request)
        answer = await asyncio.to_thread(ask, address(service), b"GET /healthz HTTP/1.1\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200 ")
    assert "Traceback" not in caplog.text + capfd.readouterr().err


async def test_many_readers_of_metrics_get_one_text_made_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    made: list[str] = []
    usual = Pipeline.stats

    def counted(self: Pipeline) -> Any:
        made.append(threading.current_thread().name)
        return usual(self)

    async with running(CAMERAS) as pipe:
        await until(lambda: results(pipe, "front") > 5)
        monkeypatch.setattr("pipeline.service.health._FRESH_SECONDS", 3600.0)
        monkeypatch.setattr(Pipeline, "stats", counted)
        async with Service(pipe, port=0) as service:
            request = b"GET /metrics HTTP/1.1\r\n\r\n"
            asking = (asyncio.to_thread(ask, address(service), request) for _ in range(32))
            answers = await asyncio.gather(*asking)
    assert len(set(answers)) == 1
    assert made == ["health"]


async def test_a_loop_that_is_stuck_is_no_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.service.health._LOOP_SECONDS", 0.2)
    async with running(CAMERAS) as pipe, Service(pipe, port=0) as service:
        answers: list[str] = []
        where = address(service)
        asking = threading.Thread(
            target=lambda: answers.append(ask(where, b"GET /healthz HTTP/1.1\r\n\r\n"))
        )
        asking.start()
        until_true(lambda: answers != [])  # which keeps the loop
        asking.join()
    assert answers[0].startswith("HTTP/1.1 503 ")
    assert "the event loop does not answer" in answers[0]


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not there; Debian: prometheus"
)
async def test_promtool_has_no_complaint(until: Any) -> None:
    async with running(CAMERAS) as pipe, Service(pipe, port=0) as service:
        await until(lambda: results(pipe, "front") > 5 and results(pipe, "rear") > 5)
        url = f"http://127.0.0.1:{address(service)[1]}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read())
        checked = await asyncio.to_thread(
            subprocess.run, ["promtool", "check", "metrics"], input=text, capture_output=True
        )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
