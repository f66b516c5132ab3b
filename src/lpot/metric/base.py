"""What every metric has: update, reset, result, and a common way to speak of faults."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

from lpot.core.errors import EvaluationError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


class BaseMetric:
    """Base of all metrics. A user's own needs `update`, `reset` and `result`; the rest is extra.

    `is_mean` says that `result()` is the plain mean of `per_sample` values, each within `bounds`,
    and `tally` how far it has come: an evaluation can then stop as soon as the bar is out of reach,
    without any risk.
    """

    name: str = "metric"  # as it is written in yaml
    higher_is_better: bool = True
    is_mean: bool = False
    bounds: tuple[float, float] = (float("-inf"), float("inf"))
    latest: Floats | None = None  # per-sample scores of the latest update, where there are some

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def update(self, preds: Any, labels: Any = None) -> None:
        """Take in one batch."""
        raise NotImplementedError(f"{type(self).__name__} has no update(preds, labels)")

    def reset(self) -> None:
        """Forget everything taken in."""
        raise NotImplementedError(f"{type(self).__name__} has no reset()")

    def result(self) -> float:
        """The score over all that was taken in."""
        raise NotImplementedError(f"{type(self).__name__} has no result()")

    def per_sample(self, preds: Any, labels: Any = None) -> Floats:
        """The score of each sample of a batch; only where the metric is a mean over samples."""
        raise self.fault("is not a mean over samples, so single samples have no score")

    @property
    def tally(self) -> tuple[int, float] | None:
        """Samples scored so far and the sum of their scores; None where there is no such mean."""
        return None

    @property
    def details(self) -> dict[str, float]:
        """All numbers the metric knows, the headline one among them."""
        return {self.name: self.result()}

    def fault(self, message: str, sample: int | None = None) -> EvaluationError:
        """The error to raise, naming the metric and the sample (counted from 0 since reset)."""
        where = "" if sample is None else f", sample {sample}"
        return EvaluationError(f"metric {self.name!r}{where}: {message}")

    def empty(self) -> EvaluationError:
        return self.fault(
            "result() was called before any sample was given: call update(preds, labels) first, "
            "and check that the evaluation dataset is not empty"
        )

    def need(self, module: str, package: str) -> Any:
        """Import an optional package, or say what to install."""
        try:
            return importlib.import_module(module)
        except ImportError as error:
            raise self.fault(
                f"needs the package {package!r}, which can't be imported ({error}): "
                f"pip install {package}"
            ) from error


class SampleMean(BaseMetric):
    """A metric that is the mean of one number per sample: write `per_sample`, get the rest."""

    is_mean = True
    bounds = (0.0, 1.0)

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.seen = 0
        self.total = 0.0
        self.latest: Floats = np.empty(0)

    def update(self, preds: Any, labels: Any = None) -> None:
        self.latest = self.per_sample(preds, labels)
        self.total += float(self.latest.sum())
        self.seen += len(self.latest)

    @property
    def tally(self) -> tuple[int, float] | None:
        return (self.seen, self.total) if self.is_mean else None

    def result(self) -> float:
        if self.seen == 0:
            raise self.empty()
        return self.total / self.seen
