"""Door: `from lpot import common`, the records under their first place."""

from lpot.experimental.common import (
    Criterions,
    DataLoader,
    Metric,
    Model,
    Optimizers,
    Postprocess,
)

__all__ = ["Criterions", "DataLoader", "Metric", "Model", "Optimizers", "Postprocess"]
