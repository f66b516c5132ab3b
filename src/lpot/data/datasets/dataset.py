"""Door: the original's module of datasets, by its class names."""

from lpot.data.datasets import DATASETS, dataset_registry
from lpot.data.datasets.base import Dataset, IterableDataset
from lpot.data.datasets.cifar import CIFAR10, CIFAR100
from lpot.data.datasets.images import ImageFolder, Imagenet, ImagenetRaw
from lpot.data.datasets.mnist import MNIST, FashionMNIST
from lpot.data.datasets.tfrecord import COCORecord, ImageRecord, TFRecordDataset, VOCRecord

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
