"""Door: `lpot.experimental.MixedPrecision`, the later name of Graph_Optimization."""

from __future__ import annotations

from lpot.experimental.graph_optimization import Graph_Optimization


class MixedPrecision(Graph_Optimization):
    """Set `model`, and `precisions` or a yaml with `mixed_precision`, then call it."""


__all__ = ["MixedPrecision"]
