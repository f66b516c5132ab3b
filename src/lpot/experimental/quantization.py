"""Door: `lpot.experimental.Quantization`, set up by attributes."""

from __future__ import annotations

from typing import Any, ClassVar

from lpot.jobs.component.attributes import SetByAttributes
from lpot.jobs.component.quantizer import Quantizer


class Quantization(SetByAttributes, Quantizer):
    """Set `model`, `calib_dataloader`, `eval_func` (or loader and metric), then call it."""

    model: Any = None
    calib_dataloader: Any = None
    eval_dataloader: Any = None
    eval_func: Any = None
    metric: Any = None
    postprocess: Any = None
    aliases: ClassVar[dict[str, str]] = {"q_dataloader": "calib_dataloader"}

    def __call__(self) -> Any:
        result = self.run(
            self.model,
            self.calib_dataloader,
            self.eval_func,
            self.eval_dataloader,
            self.metric,
            self.postprocess,
        )
        return result.model


__all__ = ["Quantization"]
