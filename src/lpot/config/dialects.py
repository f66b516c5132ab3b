"""Older spellings: keys that stood elsewhere are read as if they stood where they stand now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lpot.config.outline import Path, dotted
from lpot.config.read import Document, Mistake

# where it stood → where it stands
MOVED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("tuning", "metric"): ("evaluation", "accuracy", "metric"),
    ("tuning", "metrics"): ("evaluation", "accuracy", "metric"),
    ("quant_level",): ("quantization", "quant_level"),
}

_ABSENT = object()


def translate(document: Document) -> Document:
    """The document in today's spelling. Lines and messages keep the user's."""
    for old, new in MOVED.items():
        if _get(document.data, old) is not _ABSENT:
            document = _move(document, old, new)
    return document


def _move(document: Document, old: tuple[str, ...], new: tuple[str, ...]) -> Document:
    data = _without(document.data, old)
    if _get(data, new) is not _ABSENT:
        first = dotted(document.spelled.get(new, new))
        message = f"means the same as {first}, which is also given: keep only one"
        mistake = Mistake(old, message, document.lines.get(old, 0))
        return replace(document, data=data, mistakes=(*document.mistakes, mistake))
    changed = _with(data, new, _get(document.data, old))
    if changed is None:  # something else than a mapping stands on the way: told by the schema
        return replace(document, data=data)
    lines = {
        (*new, *path[len(old) :]) if path[: len(old)] == old else path: line
        for path, line in document.lines.items()
    }
    return replace(document, data=changed, lines=lines, spelled={**document.spelled, new: old})


def written(document: Document, path: Path) -> Path:
    """The path as the user spelled it."""
    for new, old in document.spelled.items():
        if path[: len(new)] == new:
            return (*old, *path[len(new) :])
    return path


def _get(data: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        if not isinstance(data, Mapping) or part not in data:
            return _ABSENT
        data = data[part]
    return data


def _without(data: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    first, *rest = path
    if not rest:
        return {key: value for key, value in data.items() if key != first}
    return {**data, first: _without(data[first], tuple(rest))}


def _with(data: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any] | None:
    first, *rest = path
    if not rest:
        return {**data, first: value}
    below = data.get(first)
    if below is None:
        below = {}
    if not isinstance(below, Mapping):
        return None
    changed = _with(below, tuple(rest), value)
    return None if changed is None else {**data, first: changed}
