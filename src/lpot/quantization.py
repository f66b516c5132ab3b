"""Door: `from lpot.quantization import Quantization`, the original's first API."""

from __future__ import annotations

from typing import Any

from lpot.experimental import common
from lpot.jobs.component.quantizer import Quantizer


class Quantization(Quantizer):
    """`Quantization('conf.yaml')(model, q_dataloader=…, eval_func=…)` gives the native model.

    The full Result is kept in `.result`.
    """

    _metric: Any = None
    _postprocess: Any = None

    def __call__(
        self,
        model: Any,
        q_dataloader: Any = None,
        q_func: Any = None,
        eval_dataloader: Any = None,
        eval_func: Any = None,
    ) -> Any:
        self.q_func = q_func
        result = self.run(
            model, q_dataloader, eval_func, eval_dataloader, self._metric, self._postprocess
        )
        return result.model.native

    def metric(self, name: str, metric_cls: type, **kwargs: Any) -> None:
        """Use a metric class of your own."""
        self._metric = metric_cls(**kwargs)

    def postprocess(self, name: str, postprocess_cls: type, **kwargs: Any) -> None:
        """Use a postprocess class of your own."""
        self._postprocess = postprocess_cls(**kwargs)


__all__ = ["Quantization", "common"]
