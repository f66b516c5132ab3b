"""Door: `lpot.experimental`, the original's attribute-style API."""

from __future__ import annotations

from typing import Any

from lpot.experimental import common
from lpot.experimental.benchmark import Benchmark
from lpot.experimental.graph_optimization import Graph_Optimization
from lpot.jobs.component.quantizer import Quantizer


class Quantization(Quantizer):
    """Set `model`, `calib_dataloader`, `eval_func` (or loader and metric), then call it."""

    model: Any = None
    calib_dataloader: Any = None
    eval_dataloader: Any = None
    eval_func: Any = None
    metric: Any = None
    postprocess: Any = None

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


__all__ = ["Benchmark", "Graph_Optimization", "Quantization", "common"]
