"""Door: `lpot.model.base_model`."""

from lpot.core.model import Model as BaseModel

__all__ = ["BaseModel"]
