"""Door: `lpot.experimental.model_conversion`."""

from lpot.experimental.not_yet import ModelConversion

__all__ = ["ModelConversion"]
