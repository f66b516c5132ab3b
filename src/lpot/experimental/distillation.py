"""Door: `lpot.experimental.distillation`."""

from lpot.experimental.not_yet import Distillation

__all__ = ["Distillation"]
