"""A literal dict of names to classes, with a per-process overlay for what users add."""

from __future__ import annotations

import inspect
import numbers
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lpot.core.errors import ConfigError, did_you_mean
from lpot.core.options import check_options


class Registry(Mapping[str, Any]):
    """Names to classes: the built-in ones, and on top those a user registers.

    Calling it with a framework's name gives the same names: every framework shares one set.

    >>> shapes = Registry("shape", {"square": int})
    >>> shapes("tensorflow")["square"]
    <class 'int'>
    >>> shapes.find("sqare")
    Traceback (most recent call last):
    ...
    lpot.core.errors.ConfigError: unknown shape 'sqare', did you mean 'square'? Known: square
    """

    def __init__(self, kind: str, builtin: Mapping[str, Any]) -> None:
        self.kind = kind
        self._builtin = dict(builtin)
        self._overlay: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        return self._overlay[name] if name in self._overlay else self._builtin[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._builtin
        yield from (name for name in self._overlay if name not in self._builtin)

    def __len__(self) -> int:
        return len(self._builtin.keys() | self._overlay.keys())

    def __call__(self, framework: str = "", process: str = "") -> Registry:
        return self

    @property
    def builtin(self) -> Mapping[str, Any]:
        """What the package brings along, without the user's additions."""
        return self._builtin

    def add(self, name: str, entry: Any) -> None:
        """Register a user's class for this process; a later one of the same name replaces it."""
        self._overlay[name] = entry

    def remove(self, name: str) -> None:
        """Take a user's class out again; built-in names can't be taken out."""
        self._overlay.pop(name, None)

    def find(self, name: str, path: str = "") -> Any:
        """The class of that name, or a ConfigError with the nearest names."""
        if name in self:
            return self[name]
        raise ConfigError(
            f"unknown {self.kind} {name!r}{did_you_mean(name, self) or ';'} "
            f"Known: {', '.join(sorted(self, key=str.lower))}",
            path=path,
        )

    def make(
        self,
        name: str,
        options: Mapping[str, Any],
        path: str = "",
        positional: Sequence[Any] = (),
    ) -> Any:
        """An object of the named class, its options checked by name before the call."""
        entry = self.find(name, path)
        named = dict(zip(inspect.signature(entry).parameters, positional, strict=False))
        check_options(f"{self.kind} {name}", entry, {**named, **options}, path)
        if name in self._builtin and entry is self._builtin[name]:
            check_kinds(f"{self.kind} {name}", entry, {**named, **options}, path)
        try:
            return entry(*positional, **options)
        except ConfigError as error:
            if error.path or not path:
                raise
            raise ConfigError(str(error), path) from error


# What an argument's annotation asks for: how to say it, and the types that will do.
KINDS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "str": ("a string", (str, os.PathLike)),
    "int": ("a whole number", (numbers.Integral,)),
    "float": ("a number", (numbers.Real,)),
    "bool": ("true or false", (bool, numbers.Integral)),
}


def check_kinds(
    what: str, entry: Callable[..., Any], options: Mapping[str, Any], path: str
) -> None:
    """Refuse a text where a number is asked for and the like, before anything is opened."""
    parameters = inspect.signature(entry).parameters
    for option, value in options.items():
        words = str(parameters[option].annotation) if option in parameters else ""
        wanted, _, rest = words.partition(" | ")
        if wanted not in KINDS or rest not in ("", "None") or (rest and value is None):
            continue
        said, types = KINDS[wanted]
        flag = isinstance(value, bool) and wanted != "bool"
        if flag or not isinstance(value, types):
            raise ConfigError(
                f"{option} of {what} should be {said}, not {value!r:.60}",
                path=f"{path}.{option}" if path else "",
            )
