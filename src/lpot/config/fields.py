"""The types that yaml values are read into: each accepts every spelling the contract names."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import GenericAlias
from typing import Annotated, Any, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError, core_schema

from lpot.config.frozen import FrozenDict, freeze
from lpot.config.scalar import Float, Integer, plain, show
from lpot.core.errors import did_you_mean

MISTAKE = "lpot_mistake"
Item = TypeVar("Item")
_SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def wrong(message: str, key: str = "") -> PydanticCustomError:
    """A mistake in our own words; `key` names the child of a section that it is about."""
    return PydanticCustomError(MISTAKE, "{message}", {"message": message, "key": key})


def read_text(value: Any) -> str:
    if isinstance(value, Integer | Float):
        return value.text
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        hint = ": put it in quotes if it is one" if isinstance(value, bool) else ""
        raise wrong(f"given {show(value)}, expected a string{hint}")
    text = str(value)
    if not text.strip():
        raise wrong("given an empty string, expected a non-empty one")
    return text


def read_flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _SWITCHES:
        return _SWITCHES[value.lower()]
    raise wrong(f"given {show(value)}, expected true or false")


def read_whole(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[-+]?0[0-9]+", value):
        decimal = int(value)
        raise wrong(
            f"given {value}, which yaml 1.1 reads in base 8 and yaml 1.2 in base 10: "
            f"write {decimal}"
        )
    number = _number(value)
    if number is None or not number.is_integer():
        raise wrong(f"given {show(value)}, expected a whole number")
    return int(value) if isinstance(value, int) else int(number)


def read_number(value: Any) -> float:
    number = _number(value)
    if number is None or not math.isfinite(number):
        raise wrong(f"given {show(value)}, expected a number")
    return number


def read_share(value: Any) -> float:
    """A number, or a percentage such as '1%'."""
    if isinstance(value, str) and value.strip().endswith("%"):
        number = _number(value.strip()[:-1])
        if number is not None and math.isfinite(number):
            return number / 100
    number = _number(value)
    if number is None or not math.isfinite(number):
        raise wrong(f"given {show(value)}, expected a number such as 0.01 or a percentage '1%'")
    return number


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def split(value: Any) -> Any:
    """`a, b`, `a b`, a list or a bare value, as a tuple.

    >>> split("a, b"), split("a b"), split(["a b"]), split(100)
    (('a', 'b'), ('a', 'b'), ('a b',), (100,))
    """
    if value is None:
        return ()
    if isinstance(value, str):
        parts = value.split(",") if "," in value else value.split()
        return tuple(part.strip() for part in parts if part.strip())
    if isinstance(value, list | tuple | set | frozenset):
        return tuple(value)
    return (value,)


def read_arguments(value: Any) -> FrozenDict:
    """What a class of the user's or of ours is made with; nothing means no arguments."""
    if value is None:
        return FrozenDict()
    if not isinstance(value, Mapping):
        raise wrong(
            f"given {show(value)}, expected a mapping of arguments, such as {{root: /data}}"
        )
    frozen = freeze(plain(value))
    return FrozenDict({str(key): item for key, item in frozen.items()})


def read_entries(value: Any) -> Any:
    """A mapping whose keys are the user's own names; names such as 0 are texts too."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong(f"given {show(value)}, expected a mapping of names")
    return {str(key): item for key, item in value.items()}


def read_anything(value: Any) -> Any:
    return freeze(plain(value))


@dataclass(frozen=True)
class Known:
    """The words a text may be, beside those that third parties add when loading."""

    words: tuple[str, ...]


def check_known(
    what: str, known: Known, more: Callable[[], Iterable[str]]
) -> Callable[[str, ValidationInfo], str]:
    """A check against `known`, the names given to `load`, and, only if need be, `more()`."""

    def check(value: str, info: ValidationInfo) -> str:
        context: Mapping[str, Any] = info.context or {}
        extra = tuple(context.get(what, ()))
        if value in known.words or value in extra:
            return value
        names = (*known.words, *extra, *more())
        if value in names:
            return value
        raise wrong(
            f"given {value!r}, allowed: {' | '.join(dict.fromkeys(names))}"
            f"{did_you_mean(value, names)}"
        )

    return check


Text = Annotated[str, BeforeValidator(read_text, json_schema_input_type=str | int | float)]
Flag = Annotated[bool, BeforeValidator(read_flag, json_schema_input_type=bool)]
Whole = Annotated[int, BeforeValidator(read_whole, json_schema_input_type=int)]
Natural = Annotated[Whole, Field(ge=0)]
Positive = Annotated[Whole, Field(ge=1)]
Number = Annotated[float, BeforeValidator(read_number, json_schema_input_type=float)]
Share = Annotated[float, BeforeValidator(read_share, json_schema_input_type=float | str)]


class _Listed:
    """A list, written as yaml has it, as one text, or as a single value."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        item: Any = get_args(source)[0]
        several = GenericAlias(list, (item,))
        written = BeforeValidator(split, json_schema_input_type=item | several | str)
        return written.__get_pydantic_core_schema__(source, handler)


Several = Annotated[tuple[Item, ...], _Listed()]
Texts = Several[Text]
Numbers = Several[Number]
Counts = Several[Positive]
Flags = Several[Flag]

Anything = Annotated[Any, BeforeValidator(read_anything)]
Arguments = Annotated[
    dict[str, Any],
    BeforeValidator(read_arguments, json_schema_input_type=dict[str, Any] | None),
    AfterValidator(FrozenDict),
]
