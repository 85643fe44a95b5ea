"""Settings of the model and the engine that runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WrapValidator
from pydantic_core import PydanticKnownError

from pipeline.parts import PARTS, own_kind_schema, own_kinds, target_of

__all__ = ["ModelSettings"]


def _as_file_name(value: object, check: Callable[[object], str]) -> str:
    """``value`` as it is, where pydantic would refuse a name that is no UTF-8."""
    return value if isinstance(value, str) and value else check(value)


def _known_engine(name: str) -> str:
    if target_of("engines", name) is None:
        known = ", ".join((*PARTS["engines"], *own_kinds("engines")))
        raise PydanticKnownError("literal_error", {"expected": known})
    return name


def _engine_schema(schema: dict[str, Any]) -> None:
    own_kind_schema("engines")(schema)
    schema["anyOf"].insert(0, {"enum": list(PARTS["engines"])})


_FileName = Annotated[str, WrapValidator(_as_file_name)]
_Contexts = Annotated[int, Field(ge=1, le=64)]
_Dimension = Annotated[int, Field(ge=1, le=2**31 - 1)]


class ModelSettings(BaseModel):
    """The model, its engine and device, and the number of runs at once."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    path: _FileName | None = Field(
        default=None,
        min_length=1,
        description="Model file, or package://PACKAGE/path for a file inside an installed "
        "package. Relative paths start at the folder of this file. Only the simulated engine "
        "needs none.",
    )
    engine: Annotated[str, AfterValidator(_known_engine)] = Field(
        default="openvino",
        json_schema_extra=_engine_schema,
        description="openvino reads ONNX, IR and TFLite models; rknn runs RKNN models on Rockchip "
        "NPUs; nnrt runs offline models and compiled caches on OpenHarmony; mindspore_lite reads "
        ".ms models; simulated is an NPU in software, for tests and for trying a configuration "
        "without a model. One of your own is package.module:Name or the name of an installed one.",
    )
    device: str = Field(
        default="CPU",
        min_length=1,
        description="Device of the engine, for example CPU, GPU, NPU or AUTO; the devices "
        "command lists those of this machine.",
    )
    contexts: _Contexts | Literal["auto"] = Field(
        default=1,
        description="Number of executor contexts: runs at the same time. auto: one for latency; "
        "for throughput 1, 2, ... are tried on the model when a pipeline opens.",
    )
    aim: Literal["latency", "throughput"] = Field(
        default="throughput",
        description="Goal of auto in contexts, ring.depth and options.threads: the shortest run, "
        "or the most runs per second.",
    )
    input_shape: Annotated[tuple[_Dimension, ...], Field(min_length=1, max_length=8)] | None = (
        Field(
            default=None,
            description="Shape to force on the model's input, in the model's own order, for "
            "example [1, 3, 320, 320]. By default the declared shape.",
        )
    )
    library: str | None = Field(
        default=None,
        min_length=1,
        description="The engine's shared object. A path with a / starts at the folder of this "
        "file; a plain name is searched for by the system. By default the engine finds it.",
    )
    open_timeout_s: float = Field(
        default=300.0,
        gt=0,
        le=86400,
        description="Most seconds to load and compile the model.",
    )
    run_timeout_s: float = Field(
        default=30.0,
        gt=0,
        le=86400,
        description="Seconds after which a run counts as hung: its frames are lost and the engine "
        "is reopened. The memory of the hung run stays reserved until the engine releases it. The "
        "first run of each slot, at the opening, has the same limit.",
    )
    max_failures: int = Field(
        default=3,
        ge=1,
        le=1000,
        description="Failed runs in a row after which the engine is reopened; a single failed run "
        "loses its frames only.",
    )
    reopen_attempts: int = Field(
        default=5,
        ge=0,
        le=1000,
        description="Attempts in a row to reopen the engine before the pipeline ends.",
    )
    batch_wait_ms: float = Field(
        default=5.0,
        ge=0,
        le=60000,
        description="For a model that takes a batch: milliseconds that a slot with its first "
        "frame waits for the others.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Settings of this engine; see the engine's page."
    )

    @property
    def measured(self) -> bool:
        """True if a setting is ``auto`` and measured when a pipeline opens."""
        return "auto" in (self.contexts, self.options.get("threads"))

    def context_count(self, automatic: int = 1) -> int:
        """Number of contexts, ``automatic`` where that is left to the engine."""
        return automatic if self.contexts == "auto" else self.contexts
