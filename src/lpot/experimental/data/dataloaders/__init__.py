"""Door: the original has one loader class for each framework; ours serves them all."""

from lpot.data import DATALOADERS, DataLoader

__all__ = ["DATALOADERS", "DataLoader"]
