"""Door: the original's module of datasets, by its class names."""

from lpot.data.datasets import (
    CIFAR10,
    CIFAR100,
    DATASETS,
    MNIST,
    COCORecord,
    Dataset,
    FashionMNIST,
    ImageFolder,
    Imagenet,
    ImagenetRaw,
    ImageRecord,
    IterableDataset,
    TFRecordDataset,
    VOCRecord,
    dataset_registry,
)

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "DATASETS",
    "MNIST",
    "COCORecord",
    "Dataset",
    "FashionMNIST",
    "ImageFolder",
    "ImageRecord",
    "Imagenet",
    "ImagenetRaw",
    "IterableDataset",
    "TFRecordDataset",
    "VOCRecord",
    "dataset_registry",
]
