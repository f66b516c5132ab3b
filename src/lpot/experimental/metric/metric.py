"""Door: the original's module of metrics, under its experimental path."""

from lpot.metric.metric import METRICS, BaseMetric, Metric, metric_registry

__all__ = ["METRICS", "BaseMetric", "Metric", "metric_registry"]
