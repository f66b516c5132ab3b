"""Arguments that a configuration gives to a class, checked by name before the call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from lpot.core.errors import ConfigError, did_you_mean


def check_options(
    what: str, entry: Callable[..., Any], options: Mapping[str, Any], path: str
) -> None:
    """Refuse option names that `entry` does not take, and say which ones are missing."""
    parameters = inspect.signature(entry).parameters.values()
    is_open = any(item.kind is item.VAR_KEYWORD for item in parameters)
    named = [
        item for item in parameters if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
    ]
    known = [item.name for item in named]
    for option in options:
        if option not in known and not is_open:
            raise ConfigError(
                f"{what} has no argument {option!r}{did_you_mean(str(option), known) or ';'} "
                f"It takes: {', '.join(known) or 'none'}",
                path=f"{path}.{option}" if path else "",
            )
    missing = [i.name for i in named if i.default is i.empty and i.name not in options]
    if missing:
        raise ConfigError(
            f"{what} needs {', '.join(missing)}; accepted: {', '.join(known)}", path=path
        )
