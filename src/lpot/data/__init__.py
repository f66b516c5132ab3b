"""Data: datasets, transforms, filters and loaders, one numpy core for all frameworks."""

from __future__ import annotations

from lpot.core.framework import NAMES
from lpot.data.build import build_dataset, build_loader
from lpot.data.datasets import (
    DATASETS,
    Dataset,
    IterableDataset,
    dataset_registry,
    get_dataset,
)
from lpot.data.filters import FILTERS, Filter, filter_registry
from lpot.data.loader import DataLoader
from lpot.data.transforms import (
    TRANSFORMS,
    BaseTransform,
    Compose,
    Transform,
    compose,
    transform_registry,
)

# The original has one loader class for each framework; ours serves them all.
DATALOADERS = dict.fromkeys(NAMES, DataLoader)

__all__ = [
    "DATALOADERS",
    "DATASETS",
    "FILTERS",
    "TRANSFORMS",
    "BaseTransform",
    "Compose",
    "DataLoader",
    "Dataset",
    "Filter",
    "IterableDataset",
    "Transform",
    "build_dataset",
    "build_loader",
    "compose",
    "dataset_registry",
    "filter_registry",
    "get_dataset",
    "transform_registry",
]
