"""Door: the loader of ONNX models, which is the loader of all frameworks."""

from lpot.data import DataLoader as ONNXDataLoader

__all__ = ["ONNXDataLoader"]
