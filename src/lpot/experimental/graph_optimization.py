"""Door: `lpot.experimental.Graph_Optimization`, floats of 16 bits without quantization."""

from __future__ import annotations

from typing import Any

from lpot.jobs.component.attributes import SetByAttributes
from lpot.jobs.component.optimizer import Optimizer


class Graph_Optimization(SetByAttributes, Optimizer):
    """Set `model`, and `precisions` or a yaml with `graph_optimization`, then call it."""

    model: Any = None
    eval_dataloader: Any = None
    eval_func: Any = None
    metric: Any = None
    postprocess: Any = None

    def __call__(self) -> Any:
        result = self.run(
            self.model,
            None,
            self.eval_func,
            self.eval_dataloader,
            self.metric,
            self.postprocess,
        )
        return result.model
