"""Components that are set up by attributes: a name that nothing reads is told, not ignored."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from lpot.core.errors import did_you_mean


class SetByAttributes:
    """The attributes that a class declares are its settings; `aliases` are older names of them."""

    aliases: ClassVar[dict[str, str]] = {}
    _is_made = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_made = True

    def __setattr__(self, name: str, value: Any) -> None:
        name = self.aliases.get(name, name)
        known = {*vars(self), *self._settings()}
        if self._is_made and not name.startswith("_") and name not in known:
            warnings.warn(
                f"{type(self).__name__} does not use an attribute {name!r}"
                f"{did_you_mean(name, known) or ';'} it reads {', '.join(self._settings())}",
                stacklevel=2,
            )
        super().__setattr__(name, value)

    @classmethod
    def _settings(cls) -> list[str]:
        """Public class attributes that are no methods."""
        names = (name for name in dir(cls) if not name.startswith("_") and name != "aliases")
        return [name for name in names if not callable(getattr(cls, name))]
