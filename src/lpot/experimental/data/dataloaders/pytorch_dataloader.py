"""Door: the loader of PyTorch models, which is the loader of all frameworks."""

from lpot.data import DataLoader as PyTorchDataLoader

__all__ = ["PyTorchDataLoader"]
