"""Door: `lpot.experimental.pruning`."""

from lpot.experimental.not_yet import Pruning

__all__ = ["Pruning"]
