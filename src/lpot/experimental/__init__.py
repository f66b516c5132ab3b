"""Door: `lpot.experimental`, the original's attribute-style API."""

from __future__ import annotations

from typing import Any, ClassVar

from lpot.experimental import common, data, metric
from lpot.experimental.benchmark import Benchmark
from lpot.experimental.component import Component
from lpot.experimental.distillation import Distillation
from lpot.experimental.graph_optimization import Graph_Optimization
from lpot.experimental.mixed_precision import MixedPrecision
from lpot.experimental.model_conversion import ModelConversion
from lpot.experimental.pruning import Pruning
from lpot.experimental.scheduler import Scheduler
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


__all__ = [
    "Benchmark",
    "Component",
    "Distillation",
    "Graph_Optimization",
    "MixedPrecision",
    "ModelConversion",
    "Pruning",
    "Quantization",
    "Scheduler",
    "common",
    "data",
    "metric",
]
