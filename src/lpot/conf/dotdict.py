"""Door: `lpot.conf.dotdict`, dictionaries that are also read by attribute."""

from __future__ import annotations

from typing import Any


class DotDict(dict[str, Any]):
    """
    >>> DotDict({"tuning": {"timeout": 3}}).tuning.timeout
    3
    """

    def __init__(self, value: Any = None) -> None:
        super().__init__()
        for key, item in dict(value or {}).items():
            self[key] = DotDict(item) if isinstance(item, dict) else item

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def deep_get(dictionary: Any, keys: str, default: Any = None) -> Any:
    """
    >>> deep_get({"a": {"b": 1}}, "a.b"), deep_get({"a": 1}, "a.c", "none")
    (1, 'none')
    """
    found = dictionary
    for key in keys.split("."):
        if not isinstance(found, dict) or key not in found:
            return default
        found = found[key]
    return found


__all__ = ["DotDict", "deep_get"]
