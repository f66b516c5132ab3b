"""Door: `lpot.experimental.common`, the records that old scripts hand to a component."""

from __future__ import annotations

from lpot.experimental.common.criterion import Criterions
from lpot.experimental.common.optimizer import Optimizers
from lpot.jobs.component.records import DataLoader, Metric, Model, Postprocess

__all__ = ["Criterions", "DataLoader", "Metric", "Model", "Optimizers", "Postprocess"]
