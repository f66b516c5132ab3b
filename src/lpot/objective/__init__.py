"""Door: the original's objectives. Ours are named in the yaml and measured by the tool."""

from __future__ import annotations

from typing import Any

from lpot.core.errors import NotAvailableYet

_INSTEAD = (
    "Name one in the yaml (`tuning.objective`: performance, footprint, modelsize or accuracy; "
    "`tuning.multi_objectives` for several with weights)."
)

OBJECTIVES = ("performance", "footprint", "modelsize", "accuracy")  # as `tuning.objective` has them


class Objective:
    """The base class of the original's objectives."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotAvailableYet("Objective", _INSTEAD)


def objective_registry(cls: Any) -> Any:
    raise NotAvailableYet("objective_registry", _INSTEAD)


__all__ = ["OBJECTIVES", "Objective", "objective_registry"]
