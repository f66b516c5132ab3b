"""Door: `lpot.experimental`, the original's attribute-style API."""

from __future__ import annotations

from typing import Any

from lpot.experimental import common
from lpot.jobs.quantizer import Quantizer, refuse_training


class Quantization(Quantizer):
    """Set `model`, `calib_dataloader`, `eval_func` (or loader and metric), then call it."""

    model: Any = None
    calib_dataloader: Any = None
    eval_dataloader: Any = None
    eval_func: Any = None
    metric: Any = None
    postprocess: Any = None
    q_func: Any = None

    def __call__(self) -> Any:
        refuse_training("q_func", self.q_func if self.calib_dataloader is None else None)
        result = self.run(
            self.model,
            self.calib_dataloader,
            self.eval_func,
            self.eval_dataloader,
            self.metric,
            self.postprocess,
        )
        return result.model


__all__ = ["Quantization", "common"]
