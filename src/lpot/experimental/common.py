"""Door: `lpot.experimental.common`, the records that old scripts hand to a component."""

from __future__ import annotations

from lpot.core.errors import NotAvailableYet
from lpot.jobs.component.records import DataLoader, Metric, Model, Postprocess


class Optimizers:
    """The original's list of optimizers; ours are named in the yaml."""

    def __init__(self, framework: str = "") -> None:
        raise NotAvailableYet(
            "common.Optimizers", "Name one in the yaml (`quantization.train.optimizer`)."
        )


class Criterions:
    """The original's list of losses; ours are named in the yaml."""

    def __init__(self, framework: str = "") -> None:
        raise NotAvailableYet(
            "common.Criterions", "Name one in the yaml (`quantization.train.criterion`)."
        )


__all__ = ["Criterions", "DataLoader", "Metric", "Model", "Optimizers", "Postprocess"]
