"""Door: `lpot.experimental.component`."""

from lpot.experimental.not_yet import Component

__all__ = ["Component"]
