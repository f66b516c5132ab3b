"""Metrics: one numpy core for all frameworks, found by the names of the yaml."""

from __future__ import annotations

from lpot.metric.base import BaseMetric, SampleMean
from lpot.metric.metric import Metric
from lpot.metric.registry import (
    METRICS,
    as_metric,
    from_spec,
    get_metric,
    metric_class,
    metric_registry,
    metrics_of,
    multi_metrics,
)
from lpot.metric.weighted import WeightedMetrics

__all__ = [
    "METRICS",
    "BaseMetric",
    "Metric",
    "SampleMean",
    "WeightedMetrics",
    "as_metric",
    "from_spec",
    "get_metric",
    "metric_class",
    "metric_registry",
    "metrics_of",
    "multi_metrics",
]
