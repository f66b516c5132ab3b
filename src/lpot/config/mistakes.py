"""What the schema complains of, in words that say where, what was given and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lpot.config.dialects import written
from lpot.config.fields import MISTAKE
from lpot.config.outline import Kind, Path, dotted, keys_of, kind_at, places
from lpot.config.read import Document, Mistake
from lpot.config.scalar import show
from lpot.config.schema import Config
from lpot.config.section import Section
from lpot.core.errors import ConfigError, did_you_mean

_BOUNDS = {
    "greater_than_equal": ("ge", "{} or more"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
}


class ConfigMistakes(ConfigError):
    """Everything that is wrong with a configuration; the first one is the headline."""

    def __init__(self, document: Document, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(sorted(mistakes, key=lambda mistake: mistake.line))
        lines = [_line(document, mistake) for mistake in self.mistakes]
        first = self.mistakes[0]
        message = first.message
        if len(lines) > 1:
            count = len(lines) - 1
            message += f"\nand {count} more mistake{'s' if count > 1 else ''}:\n  "
            message += "\n  ".join(lines[1:])
        super().__init__(message, dotted(first.path), _where(document, first))


def _where(document: Document, mistake: Mistake) -> str:
    if not document.file:
        return ""
    return f"{document.file}:{mistake.line}" if mistake.line else document.file


def _line(document: Document, mistake: Mistake) -> str:
    parts = (_where(document, mistake), dotted(mistake.path), mistake.message)
    return ": ".join(part for part in parts if part)


def mistakes_of(
    error: ValidationError, document: Document, schema: type[Section] = Config
) -> list[Mistake]:
    """The schema's complaints about a document."""
    return [_mistake(detail, document, schema) for detail in error.errors(include_url=False)]


def _mistake(detail: ErrorDetails, document: Document, schema: type[Section]) -> Mistake:
    path: Path = tuple(detail["loc"])
    context: Mapping[str, Any] = detail.get("ctx", {})
    if detail["type"] == MISTAKE:
        message = str(context["message"])
        key = str(context["key"])
        path = (*path, key) if key else path
    else:
        message = _message(detail, path, context, schema)
    given = path
    while given and given not in document.lines:  # a word of a list, or the name of a bare word
        given = given[:-1]
    line = document.lines.get(given, 0)
    shown = path if detail["type"] == "missing" else given or path
    return Mistake(written(document, shown), message, line)


def _message(
    detail: ErrorDetails, path: Path, context: Mapping[str, Any], schema: type[Section]
) -> str:
    kind = detail["type"]
    given = show(detail["input"])
    if kind == "extra_forbidden":
        return _unknown_key(path, schema)
    if kind == "missing":
        return "is missing"
    if kind == "literal_error":
        words = [str(word) for word in kind_at(path, schema).words]
        near = did_you_mean(str(detail["input"]), words)
        return f"given {given}, allowed: {' | '.join(words)}{near}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"given {given}, expected a mapping{_of_keys(kind_at(path, schema))}"
    if kind == "tuple_type":
        return f"given {given}, expected a list"
    if kind in _BOUNDS:
        key, phrase = _BOUNDS[kind]
        return f"given {given}, expected {phrase.format(f'{context[key]:g}')}"
    return f"given {given}: {detail['msg']}"


def _unknown_key(path: Path, schema: type[Section]) -> str:
    name = str(path[-1])
    section = kind_at(path[:-1], schema).section
    known = list(keys_of(section)) if section is not None else []
    message = f"unknown key {name!r}; allowed here: {', '.join(known)}"
    near = did_you_mean(name, known)
    if near:
        return message + near
    elsewhere = places(name) if schema is Config else ()
    return f"{message}; {name} belongs at {' or '.join(elsewhere[:3])}" if elsewhere else message


def _of_keys(kind: Kind) -> str:
    return f" of {', '.join(keys_of(kind.section))}" if kind.section is not None else ""
