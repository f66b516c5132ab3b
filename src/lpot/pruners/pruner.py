"""Door: the names of pruners, `prune_type` in the yaml."""

from __future__ import annotations

from typing import Any, get_args

from lpot.config.schema_pruning import PruneType
from lpot.core.errors import NotAvailableYet

PRUNERS: tuple[str, ...] = get_args(PruneType)


def pruner_registry(cls: Any) -> Any:
    raise NotAvailableYet(
        "pruner_registry",
        "Set weights to zero in your own pruning_func, and keep them so with `prune_type: "
        "pattern_lock`.",
    )


__all__ = ["PRUNERS", "pruner_registry"]
