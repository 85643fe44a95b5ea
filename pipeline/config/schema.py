"""JSON Schema of the YAML file, for editors and validators."""

from __future__ import annotations

from typing import Any

from pipeline.config.settings import Config

__all__ = ["json_schema"]

# Stands in the file in place of a number, a word or a list; what it becomes is checked when read.
_REFERENCE = {"type": "string", "pattern": r"\$\{"}


def json_schema() -> dict[str, Any]:
    """JSON Schema of the YAML file: of what stands there before the environment is put in."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    own = {"patternProperties": {"^x-": {"description": "Not read; for aliases to repeat."}}}
    schema = Config.model_json_schema()
    for model in (schema, *schema["$defs"].values()):
        properties = model.get("properties", {})
        model["properties"] = {name: _or_reference(each) for name, each in properties.items()}
    # A kind that is a reference may become one of either branch.
    postprocess = schema["properties"]["postprocess"]
    postprocess["anyOf"] = postprocess.pop("oneOf")
    return dialect | schema | own


def _or_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a value that may be written as ``${NAME}``; sections are left as they are."""
    if "anyOf" in schema:
        return schema | {"anyOf": [*schema["anyOf"], _REFERENCE]}
    if isinstance(schema.get("items"), dict):
        schema = schema | {"items": _or_reference(schema["items"])}
    if "enum" not in schema and schema.get("type") not in ("integer", "number", "boolean"):
        return schema
    told = ("default", "description", "title")
    outer = {key: value for key, value in schema.items() if key in told}
    inner = {key: value for key, value in schema.items() if key not in told}
    return outer | {"anyOf": [inner, _REFERENCE]}
