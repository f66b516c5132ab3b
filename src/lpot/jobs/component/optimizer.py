"""The object behind `Graph_Optimization`: what the original's scripts set and call."""

from __future__ import annotations

from typing import Any

from lpot.config.load import override
from lpot.config.rules import float_words
from lpot.config.schema import Config
from lpot.jobs.component.quantizer import Quantizer
from lpot.strategy import strategies

PRECISIONS = "graph_optimization.precisions"


class Optimizer(Quantizer):
    """`precisions` names the floats that are allowed, and wins over the yaml."""

    precisions: Any = None
    input: Any = None  # names of tensors, where the yaml and the model don't tell
    output: Any = None

    def adapted(self, model: Any, calib: Any, eval_loader: Any) -> tuple[Any, Any]:
        self.config = self._settled()
        return model, calib

    def _settled(self) -> Config:
        """Without what a shared yaml says of quantization: that is another component's."""
        changes: dict[str, Any] = {"quantization": None}
        if self.precisions:
            changes |= {PRECISIONS: self.precisions, "mixed_precision": None}
        elif not float_words(self.config):
            changes[PRECISIONS] = "fp32"
        names = {"model.inputs": self.input, "model.outputs": self.output}
        changes |= {key: value for key, value in names.items() if value}
        return override(self.config, changes, extra_strategies=strategies())
