"""Door: the loader of MXNet models, which is the loader of all frameworks."""

from lpot.data import DataLoader as MXNetDataLoader

__all__ = ["MXNetDataLoader"]
