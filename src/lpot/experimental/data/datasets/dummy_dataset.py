"""Door: the random dataset under the original's name."""

from lpot.data.datasets.dummy import Dummy as DummyDataset

__all__ = ["DummyDataset"]
