"""Door: `lpot.experimental.Benchmark`, set by attributes and called with a mode."""

from __future__ import annotations

from typing import Any, ClassVar

from lpot.jobs.component.attributes import SetByAttributes
from lpot.jobs.component.benchmarker import Benchmarker, Results


class Benchmark(SetByAttributes, Benchmarker):
    """Set `model` and `b_dataloader` (and `metric`, `postprocess`), then call it with a mode.

    `results[mode]` is (accuracy, batch size, [seconds of each batch]).
    """

    model: Any = None
    b_dataloader: Any = None
    metric: Any = None
    postprocess: Any = None
    aliases: ClassVar[dict[str, str]] = {
        "dataloader": "b_dataloader",
        "eval_dataloader": "b_dataloader",
    }

    def __call__(self, mode: str = "performance") -> Results:
        return self.run(mode, self.model, self.b_dataloader, self.metric, self.postprocess)


__all__ = ["Benchmark"]
