"""Door: the original's place for adaptors, which are backends here."""

from __future__ import annotations

from typing import Any

from lpot.core.errors import NotAvailableYet
from lpot.core.framework import NAMES as FRAMEWORKS

_INSTEAD = (
    "A custom framework is a backend: subclass lpot.core.backend.Backend and register it with "
    "lpot.backends.register(name, backend)."
)


class Adaptor:
    """The base class of the original's adaptors."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotAvailableYet("Adaptor", _INSTEAD)


def adaptor_registry(cls: Any) -> Any:
    raise NotAvailableYet("adaptor_registry", _INSTEAD)


__all__ = ["FRAMEWORKS", "Adaptor", "adaptor_registry"]
