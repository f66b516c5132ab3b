"""Door: the second form of the random dataset under the original's name."""

from lpot.data.datasets.dummy import DummyV2 as DummyDataset

__all__ = ["DummyDataset"]
