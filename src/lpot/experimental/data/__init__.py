"""Door: `lpot.experimental.data`, the registries and base classes of the original's data part."""

from lpot.data import (
    DATALOADERS,
    DATASETS,
    FILTERS,
    TRANSFORMS,
    BaseTransform,
    Compose,
    DataLoader,
    Dataset,
    Filter,
    IterableDataset,
    dataset_registry,
    filter_registry,
    transform_registry,
)

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
    "dataset_registry",
    "filter_registry",
    "transform_registry",
]
