"""Door: `lpot.experimental.common`, the records that old scripts hand to a component."""

from lpot.jobs.records import DataLoader, Metric, Model, Postprocess

__all__ = ["DataLoader", "Metric", "Model", "Postprocess"]
