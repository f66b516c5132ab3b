"""The schema for editors: what `lpot schema` prints."""

from __future__ import annotations

from typing import Any

from lpot.config.dialects import MOVED
from lpot.config.outline import dotted
from lpot.config.schema import Config

_WORDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def json_schema() -> dict[str, Any]:
    """The schema for editors, older places of keys included."""
    schema = Config.model_json_schema(mode="validation")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "lpot configuration"
    for old, new in MOVED.items():
        moved = dict(_property(schema, new))
        moved["deprecated"] = True
        moved["description"] = f"Older place of {dotted(new)}."
        _parent(schema, old)["properties"][old[-1]] = moved
    named: dict[str, Any] = _bounds(schema)
    return named


def _bounds(value: Any) -> Any:
    """Bounds that pydantic leaves in its own words, where it reads values by our functions."""
    if isinstance(value, list):
        return [_bounds(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        _WORDS.get(key, key) if isinstance(item, int | float) else key: _bounds(item)
        for key, item in value.items()
    }


def _property(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = _parent(schema, path)["properties"][path[-1]]
    return found


def _parent(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    here = schema
    for part in path[:-1]:
        reference = here["properties"][part]["$ref"]
        here = schema["$defs"][reference.rsplit("/", 1)[1]]
    return here
