"""The tree of a yaml document, put together from the parser's events within bounds.

No yaml constructor is used: so lines, spellings and duplicate keys are known, size and depth are
bounded while reading, and no tag can do anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from lpot.config.scalar import Float, Integer, resolve
from lpot.core.errors import ConfigError

MAX_DEPTH = 32
MAX_NODES = 100_000
PRUNER_TAG = "!Pruner"

_STANDARD = "tag:yaml.org,2002:"
_PLAIN_TAGS = {f"{_STANDARD}{name}" for name in ("int", "float", "bool", "null")}
_TAGS = {None, "!", f"{_STANDARD}str", f"{_STANDARD}map", f"{_STANDARD}seq", *_PLAIN_TAGS}


@dataclass(frozen=True, eq=False)
class Node:
    """A value with its place. `size` counts everything below it, aliases written out."""

    line: int
    value: Any = None
    entries: tuple[Entry, ...] | None = None
    is_list: bool = False
    tag: str | None = None
    size: int = 1
    depth: int = 0


Entry = tuple[str | int, int, Node]  # key or place, its line, what it holds


class Builder:
    """Puts nodes together from events, within bounds."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._anchors: dict[str, Node] = {}
        self._count = 0

    def build(self, events: Iterator[Event]) -> Node | None:
        root: Node | None = None
        documents = 0
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._error("a second document begins; a file may hold only one", event)
            elif isinstance(
                event, AliasEvent | ScalarEvent | MappingStartEvent | SequenceStartEvent
            ):
                root = self._node(event, events, 0)
        return root

    def _node(self, event: Event, events: Iterator[Event], depth: int) -> Node:
        self._count += 1
        if isinstance(event, AliasEvent):
            known = self._anchors.get(event.anchor)
            if known is None:
                raise self._error(f"alias *{event.anchor} has no anchor before it", event)
            self._check(depth + known.depth, known.size, event)
            return known
        self._check(depth, self._count, event)
        if isinstance(event, ScalarEvent):
            node = self._scalar(event)
        elif isinstance(event, SequenceStartEvent):
            node = self._sequence(event, events, depth)
        else:
            node = self._mapping(event, events, depth)
        anchor = getattr(event, "anchor", None)
        if anchor:
            self._anchors[anchor] = node
        return node

    def _scalar(self, event: ScalarEvent) -> Node:
        tag = self._tag(event)
        plain = event.implicit[0] or tag in _PLAIN_TAGS
        value = resolve(event.value) if plain else event.value
        if tag == f"{_STANDARD}float" and isinstance(value, Integer):
            value = Float(value.text)
        return Node(event.start_mark.line + 1, value)

    def _sequence(self, event: Event, events: Iterator[Event], depth: int) -> Node:
        tag = self._tag(event)
        entries: list[Entry] = []
        for item in events:
            if isinstance(item, SequenceEndEvent):
                break
            node = self._node(item, events, depth + 1)
            entries.append((len(entries), item.start_mark.line + 1, node))
        return self._collection(event, entries, True, tag)

    def _mapping(self, event: Event, events: Iterator[Event], depth: int) -> Node:
        tag = self._tag(event)
        entries: list[Entry] = []
        merged: list[Entry] = []
        for item in events:
            if isinstance(item, MappingEndEvent):
                break
            if not isinstance(item, ScalarEvent):
                raise self._error("a key must be a plain word", item)
            line = item.start_mark.line + 1
            self._count += 1
            node = self._node(next(events), events, depth + 1)
            if item.value == "<<" and item.implicit[0]:
                merged.extend(self._merged(node, item))
            else:
                entries.append((item.value, line, node))
        own = {key for key, _, _ in entries}
        taken = {key: (key, line, node) for key, line, node in reversed(merged) if key not in own}
        return self._collection(event, [*taken.values(), *entries], False, tag)

    def _merged(self, node: Node, event: Event) -> list[Entry]:
        sources = [item for _, _, item in node.entries or ()] if node.is_list else [node]
        if any(source.entries is None or source.is_list for source in sources):
            raise self._error("`<<` takes a mapping, or a list of them", event)
        return [entry for source in sources for entry in source.entries or ()]

    def _collection(
        self,
        event: Event,
        entries: list[Entry],
        is_list: bool,
        tag: str | None,
    ) -> Node:
        size = 1 + sum(node.size for _, _, node in entries)
        depth = 1 + max((node.depth for _, _, node in entries), default=0)
        self._check(depth, size, event)
        line = event.start_mark.line + 1
        return Node(line, None, tuple(entries), is_list, tag, size, depth)

    def _tag(self, event: Any) -> str | None:
        tag = None if event.tag is None else str(event.tag)
        if tag in _TAGS or (tag == PRUNER_TAG and isinstance(event, MappingStartEvent)):
            return tag
        shown = tag.replace(_STANDARD, "!!") if tag else ""
        raise self._error(
            f"tag {shown!r} is not allowed: a configuration holds plain data only", event
        )

    def _check(self, depth: int, size: int, event: Event) -> None:
        if depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH} levels", event)
        if size > MAX_NODES:
            raise self._error(f"more than {MAX_NODES} values after expanding aliases", event)

    def _error(self, message: str, event: Event) -> ConfigError:
        return ConfigError(message, where=f"{self._file}:{event.start_mark.line + 1}")
