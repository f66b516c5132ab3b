"""Door: benchmarking under its old module name."""

from __future__ import annotations

from lpot.core.benchmark import BenchmarkResult, Settings
from lpot.jobs.benchmark import benchmark
from lpot.jobs.contestant import Contestant

__all__ = ["BenchmarkResult", "Contestant", "Settings", "benchmark"]
