"""The schema for editors: what `lpot schema` prints."""

from __future__ import annotations

from typing import Any

from lpot.config.dialects import MOVED
from lpot.config.outline import dotted
from lpot.config.schema import Config


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
    return schema


def _property(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = _parent(schema, path)["properties"][path[-1]]
    return found


def _parent(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    here = schema
    for part in path[:-1]:
        reference = here["properties"][part]["$ref"]
        here = schema["$defs"][reference.rsplit("/", 1)[1]]
    return here
