"""Door: `lpot.experimental.ModelConversion`, set up by attributes."""

from __future__ import annotations

from lpot.experimental.quantization import Quantization
from lpot.jobs.component.converter import Converter


class ModelConversion(Quantization, Converter):
    """Set `model`, trained with fake quantization, and data to calibrate with; then call it."""


__all__ = ["ModelConversion"]
