"""Plain yaml scalars: what they mean, and what the user wrote.

A number keeps its spelling, so that `name: 1.10` stays '1.10' where a text is wanted. The words
yes, no, on and off are texts, as YAML 1.2 has it, but know which switch they stand for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Self

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_ODD_FLOAT = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONSTANTS = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False
}  # fmt: skip
_SWITCHES = {"yes": True, "on": True, "no": False, "off": False}
_LONGEST_NUMBER = 40  # longer digits are a text: nobody means them as a number


class Integer(int):
    """A whole number and its spelling."""

    text: str

    def __new__(cls, text: str) -> Self:
        self = super().__new__(cls, text, 0)
        self.text = text
        return self


class Float(float):
    """A number and its spelling."""

    text: str

    def __new__(cls, text: str) -> Self:
        self = super().__new__(cls, text.replace(".inf", "inf").replace(".nan", "nan"))
        self.text = text
        return self


class Switch(str):
    """An unquoted yes, no, on or off."""

    @property
    def flag(self) -> bool:
        return _SWITCHES[self.lower()]


def resolve(text: str) -> Any:
    """What an unquoted scalar means under the core schema of YAML 1.2.

    `017` is left a text: YAML 1.1 reads it as fifteen, 1.2 as seventeen.

    >>> resolve("1e-2"), resolve("017"), resolve("NO"), resolve("null")
    (0.01, '017', 'NO', None)
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text.lower() in _SWITCHES and text in (text.lower(), text.upper(), text.capitalize()):
        return Switch(text)
    if len(text) > _LONGEST_NUMBER:
        return text
    if _INTEGER.fullmatch(text):
        return Integer(text)
    if _FLOAT.fullmatch(text) and not text.lstrip("+-").isdigit():
        return Float(text)
    return Float(text.lower()) if _ODD_FLOAT.fullmatch(text) else text


def plain(value: Any) -> Any:
    """The value without spellings, for the free-form parts of a configuration.

    A switch becomes a boolean here: arguments such as `download: no` meant that to the original,
    and a Python class would take the text 'no' for true.
    """
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Switch):
        return value.flag
    if isinstance(value, Integer):
        return int(value)
    return float(value) if isinstance(value, Float) else value


def show(value: Any) -> str:
    """The value as the user would recognise it, short enough for a message."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Integer | Float):
        return value.text
    if isinstance(value, Mapping):
        return (
            f"a mapping ({', '.join(map(str, list(value)[:4]))})" if value else "an empty mapping"
        )
    text = repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
