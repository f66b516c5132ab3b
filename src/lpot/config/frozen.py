"""A dict that can't be changed: what free-form parts of a configuration are kept in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from pydantic_core import CoreSchema, core_schema


class FrozenDict(dict[str, Any]):
    """Behaves as a dict everywhere but refuses changes, so that a Config is frozen all the way.

    >>> FrozenDict(k=1) == {"k": 1}
    True
    """

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("a configuration can't be changed; make a new one with `override`")

    __setitem__ = __delitem__ = __ior__ = _refuse
    pop = popitem = clear = update = setdefault = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        # Pickle would otherwise rebuild a dict by setting items, which is refused.
        return (FrozenDict, (dict(self),))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls, core_schema.dict_schema())


def freeze(value: Any) -> Any:
    """The value with its mappings and lists made unchangeable."""
    if isinstance(value, Mapping):
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    return value
