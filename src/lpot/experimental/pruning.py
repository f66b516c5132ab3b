"""Door: `lpot.experimental.Pruning`, set up by attributes."""

from __future__ import annotations

from typing import Any

from lpot.core.model import Model
from lpot.jobs.component.attributes import SetByAttributes
from lpot.jobs.component.pruner import WeightPruner


class Pruning(SetByAttributes, WeightPruner):
    """Set `model`, `pruning_func` (or `train_dataloader`), `eval_func`, then call it.

    `pruning_func(model)` trains and calls `on_epoch_begin(epoch)`, `on_batch_begin(i)`,
    `on_batch_end()` and `on_epoch_end()` of this object.
    """

    model: Any = None
    train_dataloader: Any = None
    eval_dataloader: Any = None
    pruning_func: Any = None
    eval_func: Any = None
    metric: Any = None
    postprocess: Any = None

    def __call__(self) -> Model:
        return self.run(
            self.model,
            self.train_dataloader,
            self.pruning_func,
            self.eval_dataloader,
            self.eval_func,
            self.metric,
            self.postprocess,
        )


__all__ = ["Pruning"]
