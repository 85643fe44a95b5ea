"""The public face: a pipeline from a YAML file, a mapping or checked settings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.clock import Clock
from pipeline.config import load, parse
from pipeline.errors import ClosedError, ConfigError
from pipeline.runner import Runner
from pipeline.settings import Config
from pipeline.sources import SourceSettings
from pipeline.stats import Stats

__all__ = ["Pipeline", "new_event_loop"]


class Pipeline(Runner):
    """Streaming inference from a source to results.

    ``async with Pipeline.from_yaml("camera.yaml") as pipeline:`` opens everything; then either
    ``async for result in pipeline:`` hands out results, each borrowed until the next turn of
    the loop (``result.copy()`` keeps it), or ``await pipeline.wait()`` feeds only the sinks.

    ``config`` is a mapping in the YAML's shape, relative paths from the working directory,
    or a ``Config``. ``frames``, an async iterable of uint8 arrays (H, W, 3) BGR, replaces the
    source; ``live`` says whether they come at their own pace. Errors are PipelineError's kinds.
    """

    def __init__(
        self,
        config: Config | Mapping[str, Any],
        *,
        frames: AsyncIterable[Any] | None = None,
        live: bool = False,
        max_frames: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(config, Config | Mapping):
            raise ConfigError(
                f"needed a mapping or a Config, got {type(config).__name__}; a file is opened by "
                "Pipeline.from_yaml(path)"
            )
        if not isinstance(config, Config):
            mapping = dict(config)
            if frames is not None:
                mapping["source"] = {**mapping.get("source", {}), "uri": "synthetic:"}
            config = parse(mapping, Path.cwd())
        super().__init__(config, frames=frames, live=live, max_frames=max_frames, clock=clock)

    @classmethod
    def from_yaml(
        cls, path: str | os.PathLike[str], overrides: Sequence[str] = (), **options: Any
    ) -> Pipeline:
        """From a YAML file; ``overrides`` are ``path.to.key=value``, ``options`` as above."""
        return cls(load(path, list(overrides)), **options)

    async def add_camera(self, name: str, source: Mapping[str, Any] | SourceSettings) -> None:
        """Take frames of another camera, too, while the pipeline runs.

        ``source`` is what the YAML has under ``cameras``. Its file or device is opened now,
        unless it may come later (``at_start: wait``, the default for streams). SourceError when
        it cannot be opened, ConfigError when the name is taken or the settings are wrong.
        """
        if not isinstance(source, SourceSettings):
            whole = self.config.model_dump(mode="json", exclude_unset=True)
            whole.pop("source", None)
            whole["cameras"] = {name: dict(source)}
            source = parse(whole, Path.cwd()).cameras[name]
        await super().add_camera(name, source)

    def run(self) -> Stats:
        """Run to the end of the source, blocking, outside of any event loop."""
        if _loop_is_running():
            raise ClosedError(
                "pipeline: run() is for programs without an event loop; in one, use "
                "`async with` and `await pipeline.wait()`"
            )

        async def main() -> None:
            async with self:
                await self.wait()

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(main())
        return self.stats()


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
