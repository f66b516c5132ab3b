"""Door: `lpot.experimental.ModelConversion`, set up by attributes."""

from __future__ import annotations

from typing import Any

from lpot.core.model import Model
from lpot.jobs.component.attributes import SetByAttributes
from lpot.jobs.component.converter import Converter


class ModelConversion(SetByAttributes, Converter):
    """Set `model`, trained with fake quantization, and data to calibrate with; then call it."""

    model: Any = None
    calib_dataloader: Any = None
    eval_dataloader: Any = None
    eval_func: Any = None
    metric: Any = None
    postprocess: Any = None

    def __call__(self) -> Model:
        result = self.run(
            self.model,
            self.calib_dataloader,
            self.eval_func,
            self.eval_dataloader,
            self.metric,
            self.postprocess,
        )
        return result.model


__all__ = ["ModelConversion"]
