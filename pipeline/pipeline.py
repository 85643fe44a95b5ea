"""The public face: a pipeline from a YAML file, a mapping or checked settings."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.clock import Clock
from pipeline.config.loading import load, parse, parse_source
from pipeline.config.settings import Config
from pipeline.contracts import Reader
from pipeline.errors import ClosedError, ConfigError
from pipeline.flow.stats import Stats
from pipeline.machine.runner import Runner
from pipeline.signals import StopRequests
from pipeline.sources import SourceSettings

__all__ = ["Pipeline", "new_event_loop"]


class Pipeline(Runner):
    """Streaming inference from a source to results.

    ``async with Pipeline.from_yaml("camera.yaml") as pipeline:`` opens everything; then either
    ``async for result in pipeline:`` hands out results, each borrowed until the next turn of
    the loop (``result.copy()`` keeps it), or ``await pipeline.wait()`` feeds only the sinks.

    ``config`` is a mapping in the YAML's shape, relative paths from the working directory,
    or a ``Config``. ``frames``, a ``Reader`` or an async iterable of uint8 arrays (H, W, 3) BGR,
    replaces the source, ``sources`` those of the same name; ``live`` says whether the items of
    iterables come at their own pace. ``postprocess``, an object with
    ``process(outputs, mapping)`` that returns Detections, replaces that of ``config``; ``sinks``,
    objects with ``write(result)``, follow its sinks. Both run on threads of their own; the other
    members of ``Postprocess`` and ``Sink`` are optional. Errors are PipelineError's kinds.
    """

    def __init__(
        self,
        config: Config | Mapping[str, Any],
        *,
        frames: AsyncIterable[Any] | Reader | None = None,
        live: bool = False,
        max_frames: int | None = None,
        clock: Clock | None = None,
        sources: Mapping[str, Any] | None = None,
        postprocess: Any = None,
        sinks: Sequence[Any] = (),
    ) -> None:
        if not isinstance(config, Config | Mapping):
            raise ConfigError(
                f"needed a mapping or a Config, got {type(config).__name__}; a file is opened by "
                "Pipeline.from_yaml(path)"
            )
        if not isinstance(config, Config):
            config = parse(config, Path.cwd(), given=_given(frames, sources))
        super().__init__(
            config,
            frames=frames,
            live=live,
            max_frames=max_frames,
            clock=clock,
            sources=sources,
            postprocess=postprocess,
            sinks=sinks,
        )
        self._base = Path.cwd()  # where relative paths start

    @classmethod
    def from_yaml(
        cls,
        path: str | os.PathLike[str],
        overrides: Sequence[str] = (),
        *,
        frames: AsyncIterable[Any] | Reader | None = None,
        live: bool = False,
        max_frames: int | None = None,
        clock: Clock | None = None,
        sources: Mapping[str, Any] | None = None,
        postprocess: Any = None,
        sinks: Sequence[Any] = (),
    ) -> Pipeline:
        """From a YAML file; ``overrides`` are ``path.to.key=value``, the others as above."""
        config = load(path, list(overrides), given=_given(frames, sources))
        pipeline = cls(
            config,
            frames=frames,
            live=live,
            max_frames=max_frames,
            clock=clock,
            sources=sources,
            postprocess=postprocess,
            sinks=sinks,
        )
        pipeline._base = Path(os.path.abspath(path)).parent
        return pipeline

    async def add_camera(self, name: str, source: Mapping[str, Any] | SourceSettings) -> None:
        """Take frames of another camera, too, while the pipeline runs.

        ``source`` is what the YAML has under ``cameras``, with paths from the same folder. Its
        file or device is opened now, unless it may come later (``at_start: wait``, the default
        for streams). SourceError when it cannot be opened, ConfigError when the name is taken
        or the settings are wrong.
        """
        if not isinstance(source, SourceSettings):
            source = parse_source(source, self._base, name)
        await super().add_camera(name, source)

    def run(self, *, handle_signals: bool = False) -> Stats:
        """Run to the end of the source, blocking, outside of any event loop.

        ``handle_signals``: SIGINT, SIGTERM and SIGHUP drain, the second one cancels; only on
        the main thread. Otherwise they do what the program or Python has them do.
        """
        if _loop_is_running():
            raise ClosedError(
                "pipeline: run() is for programs without an event loop; in one, use "
                "`async with` and `await pipeline.wait()`"
            )
        if handle_signals and threading.current_thread() is not threading.main_thread():
            raise ClosedError("pipeline: run(handle_signals=True) is for the main thread")
        requests = StopRequests() if handle_signals else None
        with (
            requests or contextlib.nullcontext(),
            asyncio.Runner(loop_factory=new_event_loop) as runner,
        ):
            runner.run(self._run_until(requests))
        return self.stats()

    async def _run_until(self, requests: StopRequests | None) -> None:
        draining: set[asyncio.Task[None]] = set()

        def on_stop(count: int) -> None:
            if count == 1:
                draining.add(asyncio.ensure_future(self.drain()))
            else:
                self.cancel()

        if requests is not None:
            requests.attach(asyncio.get_running_loop(), on_stop)
        try:
            async with self:
                await self.wait()
        finally:
            if requests is not None:
                requests.detach()
            await asyncio.gather(*draining)


def _given(frames: object, sources: Mapping[str, Any] | None) -> Sequence[str] | None:
    """Names of the sources that the program gives; None if it gives the only one there is."""
    return None if frames is not None else tuple(sources or ())


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


Pipeline.__module__ = "pipeline"  # so that pickles survive moves
