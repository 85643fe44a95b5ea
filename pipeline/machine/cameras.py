"""The cameras of a running pipeline, each a task; they may come and go."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from pipeline.config.settings import CAMERA_NAME, Config
from pipeline.errors import Abandoned, ClosedError, ConfigError, SourceError
from pipeline.flow.capture import CaptureStage
from pipeline.machine import wiring
from pipeline.machine.assembly import Assembly
from pipeline.sources import SourceSettings

__all__ = ["Cameras"]

_STOP_SECONDS = 1.0


class Cameras:
    """Runs the captures of ``parts``. Once the last one has ended by itself, the pipeline ends.

    ``note`` gets the error of a camera that broke for good; ``abandoned`` gets the
    parts that hang.
    """

    def __init__(
        self,
        config: Config,
        parts: Assembly,
        note: Callable[[BaseException], None],
        abandoned: list[Abandoned],
    ) -> None:
        self._config = config
        self._parts = parts
        self._note = note
        self._abandoned = abandoned
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._adding: set[str] = set()
        self._ending = False

    def start(self, group: asyncio.TaskGroup) -> None:
        """Run all that are there, and from now on those that come, as tasks of ``group``."""
        self._group = group
        for name, capture in list(self._parts.captures.items()):
            if name not in self._adding:  # else it is started once it is open
                self._start(name, capture)
        self._end_if_none_is_left()

    def stop(self) -> None:
        """Take no more frames and no more cameras; those in flight still come through."""
        self._ending = True
        for capture in self._parts.captures.values():
            capture.stop()
        self._end_if_none_is_left()

    def end(self) -> None:
        """Take no more cameras: the pipeline ends."""
        self._group, self._ending = None, True

    def give_up_after(self, seconds: float) -> list[asyncio.TimerHandle]:
        """Abandon reads that are stuck after ``seconds``; the timers, for the caller to cancel."""
        loop = asyncio.get_running_loop()
        captures = list(self._parts.captures.values())
        return [loop.call_later(seconds, capture.give_up) for capture in captures]

    async def add(self, name: str, source: SourceSettings) -> None:
        """Open another camera and run it.

        SourceError when it cannot be opened, ConfigError when the name is taken, ClosedError
        when the pipeline ends.
        """
        parts = self._parts
        if self._ending:
            raise ClosedError("pipeline: it is ending, so no camera can be added")
        if not re.fullmatch(CAMERA_NAME, name):
            raise ConfigError(
                "needed 1 to 64 letters, digits, '_', '.' or '-'", ("cameras", repr(name))
            )
        if name in parts.captures:
            raise ConfigError("there is a camera of that name already", ("cameras", name))
        capture = parts.add_camera(wiring.camera_wiring(self._config, name, source), source)
        self._adding.add(name)
        try:
            await capture.open()
            if self._ending or parts.captures.get(name) is not capture:
                raise ClosedError(f"cameras.{name}: it was removed while it was being added")
        except BaseException:
            await self._close(name, capture)
            raise
        finally:
            self._adding.discard(name)
        if self._group is not None:
            self._start(name, capture)

    async def remove(self, name: str) -> None:
        """Stop a camera and forget it; those of its frames with the engine still come through."""
        capture = self._parts.captures.get(name)
        if capture is None:
            raise ConfigError("there is no camera of that name", ("cameras", name))
        # Not waited for as the last one: another may be added in its place.
        task = self._tasks.pop(name, None)
        capture.stop()
        if task is not None:
            done, _ = await asyncio.wait({task}, timeout=_STOP_SECONDS)
            if not done:
                capture.give_up()
                await asyncio.wait({task}, timeout=_STOP_SECONDS)
        await self._close(name, capture)
        if self._ending:
            self._end_if_none_is_left()

    async def _close(self, name: str, capture: CaptureStage) -> None:
        try:
            if not await capture.close(_STOP_SECONDS):
                self._abandoned.append(Abandoned(capture.kind, capture.name))
        finally:
            self._parts.forget_camera(name, capture)

    def _start(self, name: str, capture: CaptureStage) -> None:
        assert self._group is not None
        task = self._group.create_task(self._run(name, capture), name=capture.name)
        self._tasks[name] = task

    async def _run(self, name: str, capture: CaptureStage) -> None:
        await asyncio.sleep(0)  # an eager task has begun before `_start` knows it
        try:
            await capture.run()
        except BaseException:
            self._ending = True
            raise
        if capture.error is not None:
            # What came before it still becomes results, and other cameras go on.
            error = capture.error
            if self._config.cameras:
                error = SourceError(f"camera {name}: {capture.error}")
                error.__cause__ = capture.error
            self._note(error)
        if self._tasks.get(name) is asyncio.current_task():  # else it was removed
            del self._tasks[name]
            if not self._tasks:
                self._ending = True
                self._parts.end_of_cameras()

    def _end_if_none_is_left(self) -> None:
        """After ``stop``, when no task of a camera will do it."""
        started = self._group is not None
        if self._ending and not self._tasks and (started or not self._parts.captures):
            self._parts.end_of_cameras()
