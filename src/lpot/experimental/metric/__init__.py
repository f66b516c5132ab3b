"""Door: `lpot.experimental.metric`, the registry and base class of the original's metrics."""

from lpot.metric import METRICS, BaseMetric, metric_registry

__all__ = ["METRICS", "BaseMetric", "metric_registry"]
