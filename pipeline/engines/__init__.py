"""Engines by name, and the executor that runs a model on one of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from pipeline import problems
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pipeline import _native
    from pipeline.engines.autotune_values import Trials
    from pipeline.engines.image import ImageInput
    from pipeline.engines.settings import ModelSettings

__all__ = [
    "ENGINES",
    "EngineModule",
    "engine_module",
    "options_model",
    "unknown_option",
    "validated_options",
]

# A new engine is one native file, one module here and one line in this table.
ENGINES = {
    "mindspore_lite": "pipeline.engines.mindspore_lite",
    "nnrt": "pipeline.engines.nnrt",
    "openvino": "pipeline.engines.openvino",
    "rknn": "pipeline.engines.rknn",
    "simulated": "pipeline.engines.simulated",
}


class EngineModule(Protocol):
    """Python module of an engine."""

    OPTIONS: type[BaseModel]
    SWAPS_COLORS: bool
    """True if the engine swaps colors at no cost; otherwise preprocessing does."""

    @staticmethod
    def open_engine(settings: ModelSettings, image: ImageInput | None) -> _native.Engine:
        """Load the model on the device. Blocks. EngineError, naming what is wrong."""

    @staticmethod
    def trials(settings: ModelSettings, cores: int) -> Trials:
        """Values worth trying for the settings that are ``auto``."""

    @staticmethod
    def list_devices(library: str | None) -> tuple[str, list[tuple[str, str]]]:
        """Version, and (id, full name) of each device. EngineNotInstalledError."""


def engine_module(engine: str) -> EngineModule:
    """The module of an engine. ConfigError when there is none of that name."""
    if engine not in ENGINES:
        raise ConfigError(f"engine: {engine!r} is not one of {', '.join(sorted(ENGINES))}")
    return cast(EngineModule, import_module(ENGINES[engine]))


def options_model(engine: str) -> type[BaseModel]:
    """The settings class of an engine's ``model.options``."""
    return engine_module(engine).OPTIONS


def validated_options(engine: str, options: dict[str, Any]) -> Any:
    """Options as the engine's own settings. ConfigError naming the option."""
    return problems.validated(options_model(engine), options, ("options",), unknown_option(engine))


def unknown_option(engine: str) -> str:
    """Message for an option that the engine does not have."""
    return f"engine {engine} has no such option"
