"""Engines by name, and the executor that runs a model on one of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pipeline import parts, problems
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from pipeline import _native
    from pipeline.contracts import EngineModule
    from pipeline.engines.image import ImageInput
    from pipeline.engines.settings import ModelSettings

__all__ = [
    "engine_module",
    "imported",
    "open_engine",
    "open_native",
    "slot_bytes",
    "unknown_option",
    "validated_options",
]

_MEMBERS = (
    "OPTIONS",
    "SWAPS_COLORS",
    "TAKES_DEVICE",
    "needs_file",
    "open_engine",
    "trials",
    "list_devices",
)


def engine_module(engine: str) -> EngineModule:
    """The module of an engine, imported. Blocks.

    ConfigError when there is none of that name, or it lacks a member.
    """
    module = parts.load("engines", engine)
    if missing := [name for name in _MEMBERS if not hasattr(module, name)]:
        raise ConfigError(
            f"{engine} is no engine, it has no {', '.join(missing)}; "
            "see EngineModule in pipeline/contracts.py"
        )
    return cast("EngineModule", module)


def imported(engine: str) -> bool:
    """True if the engine is built in, or the module that was named for it is imported."""
    target = parts.target_of("engines", engine) or ""
    return engine in parts.PARTS["engines"] or target.partition(":")[0] in sys.modules


def validated_options(engine: str, options: dict[str, Any]) -> Any:
    """Options as the engine's own settings. ConfigError naming the option."""
    model = engine_module(engine).OPTIONS
    return problems.validated(model, options, ("options",), unknown_option(engine))


def unknown_option(engine: str) -> str:
    """Message for an option that the engine does not have."""
    return f"engine {engine} has no such option"


def slot_bytes(settings: ModelSettings) -> tuple[int, int] | None:
    """Bytes of a slot's inputs and outputs; None where they are not known before opening."""
    known = imported(settings.engine) and getattr(
        engine_module(settings.engine), "slot_bytes", None
    )
    return known(settings) if known else None


def open_engine(settings: ModelSettings, image: ImageInput | None) -> _native.Engine:
    """Load the model by its engine. Blocks.

    Without ``image`` every input stays as the model declares it; with it, each image input is
    uint8 NHWC. ConfigError (an option that is wrong or does not fit the model), and what
    ``EngineModule.open_engine`` raises.
    """
    module = engine_module(settings.engine)
    options = validated_options(settings.engine, settings.options)
    if settings.path is None and module.needs_file(settings.options):
        raise ConfigError(f"missing, but engine {settings.engine} needs a model file", ("path",))
    return module.open_engine(settings, options, image)


def open_native(
    engine: str,
    library: str,
    settings: ModelSettings,
    image: ImageInput | None,
    options: Mapping[str, Any],
) -> _native.Engine:
    """Open one of the native engines with what most have in common, and ``options`` of its own.

    An option that is None is left to the engine; one that it does not know is a ConfigError.
    """
    from pipeline import _native

    common = {
        "library": library,
        "model": None if settings.path is None else os.fsencode(settings.path),
        "device": settings.device,
        "contexts": None if settings.contexts == "auto" else settings.contexts,
        "input_shape": settings.input_shape,
        "image": None if image is None else image._asdict(),
    }
    return _native.open_engine(engine, {**common, **options})
