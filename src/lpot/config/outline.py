"""A walk over the schema: which keys there are, what stands below each, which words it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from lpot.config.fields import Known
from lpot.config.schema import Config
from lpot.config.section import Section

Path = tuple[str | int, ...]
Shape = Literal["value", "list", "mapping"]

ANY_NAME = "<name>"


@dataclass(frozen=True)
class Kind:
    """What a key holds: `section` is set when known keys stand below it, in each entry of a
    list or mapping if `shape` is one of these."""

    shape: Shape = "value"
    section: type[Section] | None = None
    words: tuple[str | int, ...] = ()
    base: type | None = None


@dataclass(frozen=True)
class Key:
    """One key of the schema; `path` has <name> where the user's own names stand."""

    path: tuple[str, ...]
    field: FieldInfo
    kind: Kind


def kind_of(annotation: Any, metadata: tuple[Any, ...] = ()) -> Kind:
    """What an annotation of the schema stands for."""
    for item in metadata:
        if isinstance(item, Known):
            return Kind(words=item.words, base=str)
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        return kind_of(inner, tuple(more))
    if origin in (Union, UnionType):
        options = [option for option in get_args(annotation) if option is not NoneType]
        return kind_of(options[0])
    if origin is Literal:
        return Kind(words=get_args(annotation), base=str)
    if origin is tuple or origin is dict:
        item = kind_of(get_args(annotation)[0 if origin is tuple else 1])
        return Kind("list" if origin is tuple else "mapping", item.section, item.words, item.base)
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return Kind(section=annotation)
    known = isinstance(annotation, type) and annotation is not Any
    return Kind(base=annotation if known else None)


def keys_of(section: type[Section]) -> dict[str, Kind]:
    """The keys of one section."""
    return {
        name: kind_of(field.annotation, tuple(field.metadata))
        for name, field in section.model_fields.items()
    }


def walk(section: type[Section] = Config, prefix: tuple[str, ...] = ()) -> Iterator[Key]:
    """Every key, sections before what stands in them."""
    for name, kind in keys_of(section).items():
        path = (*prefix, name)
        yield Key(path, section.model_fields[name], kind)
        if kind.section is not None:
            below = path if kind.shape == "value" else (*path, ANY_NAME)
            yield from walk(kind.section, below)


def kind_at(path: Path, schema: type[Section] = Config) -> Kind:
    """What stands at a path that a user wrote; an empty Kind where the schema ends."""
    kind = Kind(section=schema)
    for part in path:
        if kind.shape != "value":
            kind = Kind(section=kind.section, words=kind.words, base=kind.base)
        elif kind.section is not None:
            kind = keys_of(kind.section).get(str(part), Kind())
        else:
            return Kind()
    return kind


@cache
def places(name: str) -> tuple[str, ...]:
    """Where in the schema a key of this name belongs."""
    found = (dotted(key.path) for key in walk() if key.path[-1] == name)
    return tuple(dict.fromkeys(found))


def dotted(path: Path) -> str:
    """A path as messages show it.

    >>> dotted(("pruners", 0, "names"))
    'pruners[0].names'
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
