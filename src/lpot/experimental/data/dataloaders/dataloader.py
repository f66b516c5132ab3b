"""Door: the original's module of loaders."""

from lpot.data import DATALOADERS, DataLoader

__all__ = ["DATALOADERS", "DataLoader"]
