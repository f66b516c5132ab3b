"""Door: `lpot.experimental`, the original's attribute-style API."""

from __future__ import annotations

from lpot.experimental import common, data, metric
from lpot.experimental.benchmark import Benchmark
from lpot.experimental.component import Component
from lpot.experimental.distillation import Distillation
from lpot.experimental.graph_optimization import Graph_Optimization
from lpot.experimental.mixed_precision import MixedPrecision
from lpot.experimental.model_conversion import ModelConversion
from lpot.experimental.pruning import Pruning
from lpot.experimental.quantization import Quantization
from lpot.experimental.scheduler import Scheduler

__all__ = [
    "Benchmark",
    "Component",
    "Distillation",
    "Graph_Optimization",
    "MixedPrecision",
    "ModelConversion",
    "Pruning",
    "Quantization",
    "Scheduler",
    "common",
    "data",
    "metric",
]
