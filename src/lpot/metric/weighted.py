"""Several metrics as one number, for `multi_metrics`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError
from lpot.core.evaluation.metric import Told
from lpot.metric.base import BaseMetric, Floats


class WeightedMetrics(BaseMetric):
    """The weighted sum of several metrics; `details` has each of them.

    If higher is better for all metrics, or lower for all, they are simply added. If they
    differ, those where lower is better are subtracted, and higher is better. By default all weights
    are equal.

    >>> from lpot.metric.classification import Accuracy, F1
    >>> metric = WeightedMetrics({"Accuracy": Accuracy(), "F1": F1()}, weight=[0.75, 0.25])
    >>> metric.update([1, 1, 0, 1], [1, 0, 0, 1])
    >>> round(metric.result(), 4)
    0.7625
    """

    name = "multi_metrics"

    def __init__(
        self,
        metrics: Mapping[str, BaseMetric],
        weight: Sequence[float] | None = None,
        higher_is_better: Sequence[bool] | None = None,
    ) -> None:
        if not metrics:
            raise ConfigError("no metric was given, expected at least one", path=self.name)
        self.metrics = dict(metrics)
        self._told = [Told(metric) for metric in metrics.values()]
        count = len(self.metrics)
        weights = list(weight) if weight else [1.0 / count] * count
        wishes = [told.higher_is_better for told in self._told]
        upward = list(higher_is_better) if higher_is_better else wishes
        for given, key in ((weights, "weight"), (upward, "higher_is_better")):
            if len(given) != count:
                raise ConfigError(
                    f"{len(given)} values for {count} metrics ({', '.join(self.metrics)})",
                    path=f"{self.name}.{key}",
                )
        if any(not np.isfinite(one) or one < 0 for one in weights) or not any(weights):
            raise ConfigError(
                f"{weights} given, expected numbers from 0, not all 0", path=f"{self.name}.weight"
            )
        self.higher_is_better = any(upward)
        self.weights = [
            float(one) * (-1.0 if self.higher_is_better and not up else 1.0)
            for one, up in zip(weights, upward, strict=True)
        ]

    @property
    def is_mean(self) -> bool:  # type: ignore[override]  # depends on the members
        return all(told.is_mean for told in self._told)

    @property
    def bounds(self) -> tuple[float, float]:  # type: ignore[override]  # depends on the members
        ends = np.zeros(2)
        for told, weight in zip(self._told, self.weights, strict=True):
            if weight:
                low, high = told.bounds
                ends += np.sort([weight * low, weight * high])
        return float(ends[0]), float(ends[1])

    def update(self, preds: Any, labels: Any = None) -> None:
        for metric in self.metrics.values():
            metric.update(preds, labels)

    def reset(self) -> None:
        for metric in self.metrics.values():
            metric.reset()

    def per_sample(self, preds: Any, labels: Any = None) -> Floats:
        if not self.is_mean:
            return super().per_sample(preds, labels)
        rows = [
            weight * metric.per_sample(preds, labels)
            for metric, weight in zip(self.metrics.values(), self.weights, strict=True)
        ]
        total: Floats = np.sum(rows, axis=0, dtype=np.float64)
        return total

    @property
    def tally(self) -> tuple[int, float] | None:
        parts = [told.tally for told in self._told]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) or len({part.seen for part in known}) > 1:
            return None
        return known[0].seen, float(np.dot([part.total for part in known], self.weights))

    @property
    def latest(self) -> Floats | None:  # type: ignore[override]  # depends on the members
        rows = [told.latest for told in self._told]
        known = [row for row in rows if row is not None]
        if len(known) < len(rows) or len({len(row) for row in known}) > 1:
            return None
        total: Floats = np.dot(self.weights, known)
        return total

    def result(self) -> float:
        scores = [float(metric.result()) for metric in self.metrics.values()]
        return float(np.dot(scores, self.weights))

    @property
    def details(self) -> dict[str, float]:
        return {name: float(metric.result()) for name, metric in self.metrics.items()}
