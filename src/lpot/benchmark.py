"""Door: benchmarking under its old module name."""

from __future__ import annotations

import logging
from typing import Any

from lpot.core.batch import InputSpec
from lpot.core.results.benchmark import BenchmarkResult, Layout, Settings
from lpot.jobs.benchmark.api import benchmark
from lpot.jobs.benchmark.contestant import Contestant
from lpot.jobs.benchmark.profile import profile
from lpot.jobs.benchmark.runtimes import runtimes
from lpot.jobs.component.benchmarker import Benchmarker, Results

logger = logging.getLogger(__name__)


class Benchmark(Benchmarker):
    """`Benchmark('conf.yaml')(model, b_dataloader=…)` gives the results by mode.

    The modes are those that the yaml's `evaluation` names, or performance.
    """

    _metric: Any = None
    _postprocess: Any = None

    def __call__(self, model: Any, b_dataloader: Any = None, b_func: Any = None) -> Results:
        if b_func is not None:
            logger.warning("b_func is not used: a benchmark runs the model itself")
        for mode in self.modes:
            self.run(mode, model, b_dataloader, self._metric, self._postprocess)
        return self.results

    def metric(self, name: str, metric_cls: type, **kwargs: Any) -> None:
        """Use a metric class of your own."""
        self._metric = metric_cls(**kwargs)

    def postprocess(self, name: str, postprocess_cls: type, **kwargs: Any) -> None:
        """Use a postprocess class of your own."""
        self._postprocess = postprocess_cls(**kwargs)


__all__ = [
    "Benchmark",
    "BenchmarkResult",
    "Contestant",
    "InputSpec",
    "Layout",
    "Settings",
    "benchmark",
    "profile",
    "runtimes",
]
