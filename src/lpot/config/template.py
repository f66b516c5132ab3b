"""Writes template.yaml: every key with its default and its meaning, ready to be cut down.

A line that begins with `#` and a key is a key that has no default: take the `#` away to set it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import PydanticUndefined

from lpot.config.availability import LATER, later_words
from lpot.config.outline import Key, dotted, kind_of
from lpot.config.schema import Config
from lpot.config.section import Section

_HEADER = """\
# Every key of an lpot configuration, with its default. Keep what you change.
# Keys that are commented out have no default: uncomment them to set them. docs/yaml.md has the same
# as tables. This file is generated from the schema: python -m lpot.config.document
"""
_WIDTH = 96
_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off"}
_STAND_INS: dict[type | None, Any] = {str: "text", int: 1, float: 0.5, bool: False, None: "text"}


def template() -> str:
    """The text of template.yaml."""
    lines = list(_section(Config, (), {}))
    return _HEADER + "\n".join(lines) + "\n"


def flow(value: Any) -> str:
    """A value as yaml writes it in one line.

    >>> flow({"a": [1, "x", "1%"], "b": None})
    "{a: [1, x, '1%'], b: null}"
    """
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{flow(key)}: {flow(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(flow, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return repr(value)
    if not isinstance(value, str):
        return str(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return "'" + value.replace("'", "''") + "'"


def _section(
    section: type[Section],
    prefix: tuple[str, ...],
    seen: dict[type[Section], str],
    hidden: bool = False,
) -> Iterator[str]:
    for name, field in section.model_fields.items():
        key = Key((*prefix, name), field, kind_of(field.annotation, tuple(field.metadata)))
        if not prefix:
            yield ""
        yield from _entry(key, seen, hidden)


def _entry(key: Key, seen: dict[type[Section], str], hidden: bool) -> Iterator[str]:
    """Comment, key and what stands below it. Inside a hidden section nothing is hidden again."""
    section, name = key.kind.section, key.path[-1]
    first = None if section is None else seen.get(section)
    yield from _comment(key, first)
    examples = key.field.examples
    hide = not hidden and (key.field.default in (None, PydanticUndefined) or bool(examples))
    mark = "#" if hide else ""
    if section is None or examples or key.kind.shape != "value":
        yield f"{mark}{name}: {flow(examples[0] if examples else _value(key))}"
        return
    yield f"{mark}{name}:"
    if first is None:
        seen[section] = dotted(key.path)
        for line in _section(section, key.path, seen, hidden or hide):
            yield f"{mark}  {line}"


def _comment(key: Key, first: str | None) -> Iterator[str]:
    text = key.field.description or ""
    if key.kind.words:
        text += f" Allowed: {' | '.join(map(str, key.kind.words))}."
    if later_words(key.path):
        text += f" Not available yet: {', '.join(later_words(key.path))}."
    if dotted(key.path) in LATER:
        text += " Not available yet."
    if first is not None and key.kind.section is not None and key.kind.section.model_fields:
        text += f" Same keys as {first}."
    for line in textwrap.wrap(text, _WIDTH - 2 * len(key.path)):
        yield f"# {line}"


def _value(key: Key) -> Any:
    default = key.field.default
    if default is None or default is PydanticUndefined:
        if key.kind.words:
            return key.kind.words[0]
        return {} if key.kind.shape == "mapping" else _STAND_INS[key.kind.base]
    return default
