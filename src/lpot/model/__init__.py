"""Door: `lpot.model`. `BaseModel` is the handle that a tuning gives back."""

from lpot.core.model import Model as BaseModel

__all__ = ["BaseModel"]
