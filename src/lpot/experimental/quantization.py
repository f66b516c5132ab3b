"""Door: `lpot.experimental.quantization`."""

from lpot.experimental import Quantization

__all__ = ["Quantization"]
