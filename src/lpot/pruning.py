"""Door: `from lpot.pruning import Pruning`, the original's first API."""

from __future__ import annotations

from typing import Any

from lpot.jobs.component.pruner import WeightPruner
from lpot.jobs.component.records import as_native


class Pruning(WeightPruner):
    """`Pruning('conf.yaml')(model, pruning_func=…, eval_func=…)` gives the native model."""

    def __call__(
        self,
        model: Any,
        train_dataloader: Any = None,
        pruning_func: Any = None,
        eval_dataloader: Any = None,
        eval_func: Any = None,
    ) -> Any:
        found = self.run(model, train_dataloader, pruning_func, eval_dataloader, eval_func)
        return as_native(found)


__all__ = ["Pruning"]
