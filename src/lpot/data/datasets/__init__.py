"""Datasets: every name of the yaml's `dataset`, one code for all frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lpot.data.datasets.base import Dataset, IterableDataset
from lpot.data.datasets.bert import Bert, BertRecord
from lpot.data.datasets.cifar import CIFAR10, CIFAR100
from lpot.data.datasets.coco import COCONpy, COCORaw
from lpot.data.datasets.dummy import Dummy, DummyV2, SparseDummyV2
from lpot.data.datasets.glue import GLUE
from lpot.data.datasets.images import ImageFolder, Imagenet, ImagenetRaw
from lpot.data.datasets.mnist import MNIST, FashionMNIST
from lpot.data.datasets.squad import SQuAD
from lpot.data.datasets.style import StyleTransfer
from lpot.data.datasets.tfrecord import COCORecord, ImageRecord, TFRecordDataset, VOCRecord
from lpot.data.registry import Registry

DATASETS = Registry(
    "dataset",
    {
        "CIFAR10": CIFAR10,
        "CIFAR100": CIFAR100,
        "COCONpy": COCONpy,
        "COCORaw": COCORaw,
        "COCORecord": COCORecord,
        "FashionMNIST": FashionMNIST,
        "GLUE": GLUE,
        "ImageFolder": ImageFolder,
        "ImageRecord": ImageRecord,
        "Imagenet": Imagenet,
        "ImagenetRaw": ImagenetRaw,
        "MNIST": MNIST,
        "SQuAD": SQuAD,
        "TFRecordDataset": TFRecordDataset,
        "VOCRecord": VOCRecord,
        "bert": Bert,
        "dummy": Dummy,
        "dummy_v2": DummyV2,
        "mzbert": BertRecord,
        "sparse_dummy_v2": SparseDummyV2,
        "style_transfer": StyleTransfer,
    },
)

__all__ = ["DATASETS", "Dataset", "IterableDataset", "dataset_registry", "get_dataset"]


def get_dataset(name: str, /, *positional: Any, **options: Any) -> Any:
    """A dataset by name, its options checked before it opens any file.

    >>> len(get_dataset("dummy", shape=[5, 2, 2], label=True))
    5
    """
    return DATASETS.make(name, options, positional=positional)


def dataset_registry(
    dataset_type: str, framework: str = "", dataset_format: str = ""
) -> Callable[[type], type]:
    """Class decorator: make a dataset of your own known by name to yaml, for this process."""

    def register(entry: type) -> type:
        DATASETS.add(dataset_type, entry)
        return entry

    return register
