"""Door: the loader of TensorFlow models, which is the loader of all frameworks."""

from lpot.data import DataLoader as TensorflowDataLoader

__all__ = ["TensorflowDataLoader"]
