"""Door: the original's module of metrics. `Metric` is what its first versions call BaseMetric."""

from lpot.metric.base import BaseMetric
from lpot.metric.base import BaseMetric as Metric
from lpot.metric.registry import METRICS, metric_registry

__all__ = ["METRICS", "BaseMetric", "Metric", "metric_registry"]
