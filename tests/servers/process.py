"""A server as a child process: started, asked until it answers, frozen, killed, restarted."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from .behaviour import Behaviour

__all__ = ["Server", "ServerError"]

_PACKAGE = Path(__file__).parent
_LOG_TAIL = 4000


class ServerError(AssertionError):
    """A test server did not do what it was told; the message has the end of its log."""


def _reserve() -> socket.socket:
    """A free port, kept from others: bound but not listening, so connecting to it is refused."""
    held = socket.socket()
    # Both sides set it, so that the child can bind and listen while the port is held here.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


class Server:
    """A server that is started on entry and gone on exit, whatever happened to it meanwhile.

    Subclasses name the ``program``, a module of this package, and the ``request`` that it
    answers with something that starts with ``answer``. The port stays the same for all of the
    object's life, also while no server runs.
    """

    program: ClassVar[str]
    python: ClassVar[str] = sys.executable
    scheme: ClassVar[str] = "http"
    path: ClassVar[str] = "/"
    request: ClassVar[bytes] = b""
    answer: ClassVar[bytes] = b""

    def __init__(self, behaviour: Behaviour, *, ready_seconds: float = 30.0) -> None:
        self._held = _reserve()
        self.behaviour = replace(behaviour, port=self._held.getsockname()[1])
        self._ready_seconds = ready_seconds + behaviour.late
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - kept until close
        self._child: subprocess.Popen[bytes] | None = None
        self.epoch = 0.0
        self.folder: Path | None = None

    # --- what a test asks

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return self.behaviour.port

    @property
    def url(self) -> str:
        """Where the stream is, with the user and password if it needs them."""
        who = f"{self.behaviour.user}:{self.behaviour.password}@" if self.behaviour.user else ""
        return f"{self.scheme}://{who}127.0.0.1:{self.port}{self.path}"

    @property
    def pid(self) -> int:
        """The process that runs now."""
        return self._running().pid

    @property
    def log(self) -> str:
        """Everything that the server said, also before it was restarted."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def age(self, number: int, at: float | None = None) -> float:
        """Seconds since frame ``number`` was due, now or ``at`` (``time.monotonic``)."""
        return (time.monotonic() if at is None else at) - self.epoch - number / self.behaviour.fps

    # --- what a test does

    def start(self, *, wait: bool = True) -> Self:
        """Start the process and wait until it answers; without ``wait`` call ``wait_ready``."""
        if self._child is not None:
            raise ServerError(f"{self}: runs already")
        paths = [str(_PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
        self._child = subprocess.Popen(
            [self.python, "-m", f"{_PACKAGE.name}.{self.program}", self._told()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            # Of its own, so that Ctrl-C goes to the tests alone, but in the same session: when
            # the tests die, the kernel hangs up on it even if it is frozen.
            process_group=0,
        )
        return self.wait_ready() if wait else self

    def wait_ready(self) -> Self:
        """Wait until the server answers a request. ServerError when it does not or ended."""
        child = self._running()
        assert child.stdout is not None
        if not select.select([child.stdout], [], [], self._ready_seconds)[0]:
            raise self._failed(f"not ready within {self._ready_seconds:g} s")
        line = child.stdout.readline()
        if not line:
            raise self._failed(f"ended with {child.wait()} before it was ready")
        self.epoch = float(json.loads(line)["epoch"])
        self._ask()
        return self

    def tell(self, **changes: Any) -> None:
        """Change the behaviour, now if the server runs, else when it is started."""
        self.behaviour = replace(self.behaviour, **changes)
        if self._child is not None:
            assert self._child.stdin is not None
            try:
                self._child.stdin.write(self._told().encode() + b"\n")
                self._child.stdin.flush()
            except BrokenPipeError:
                raise self._failed(f"ended with {self._child.wait()}") from None

    def freeze(self) -> None:
        """Stop the process in the middle of what it does; its connections stay."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self._running().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process at once; the kernel closes its connections."""
        self._running().kill()
        self._gone()

    def stop(self) -> None:
        """End the process if it runs, frozen or not."""
        if self._child is None:
            return
        self._child.terminate()
        self._child.send_signal(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(3)
        self._child.kill()
        self._gone()

    def restart(self, **changes: Any) -> Self:
        """Kill the process if it runs and start it again on the same port."""
        if self._child is not None:
            self.kill()
        self.tell(**changes)
        return self.start()

    def close(self) -> None:
        """Stop, give the port back and drop the log."""
        self.stop()
        self._held.close()
        self._log.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"log of {self}:\n{self.log[-_LOG_TAIL:]}")
        self.close()

    def __repr__(self) -> str:
        state = "not running" if self._child is None else f"process {self._child.pid}"
        return f"{type(self).__name__} on port {self.port}, {state}"

    # --- parts

    def _told(self) -> str:
        return json.dumps(asdict(self.behaviour))

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise ServerError(f"{self}: start it first")
        return self._child

    def _gone(self) -> None:
        child, self._child = self._running(), None
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _ask(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), self._ready_seconds) as link:
            if not self.request:
                return
            link.sendall(self.request)
            got = link.recv(len(self.answer), socket.MSG_WAITALL)
        if got != self.answer:
            raise self._failed(f"answered {got!r}, needed {self.answer!r}")

    def _failed(self, what: str) -> ServerError:
        return ServerError(f"{self}: {what}; its log:\n{self.log[-_LOG_TAIL:]}")
