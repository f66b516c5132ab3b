"""Door: datasets under the original's experimental path."""

from lpot.data.datasets import DATASETS, Dataset, IterableDataset, dataset_registry

__all__ = ["DATASETS", "Dataset", "IterableDataset", "dataset_registry"]
