"""Door: pruning under its old module name."""

from lpot.experimental.not_yet import Pruning

__all__ = ["Pruning"]
