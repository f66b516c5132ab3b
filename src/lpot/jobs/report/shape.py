"""What report.json must look like before any of it is shown: it may be anybody's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lpot.core.report import GraphNode, OpRow, State, TimeRow, TrialRow

LARGEST = 1e30  # figures beyond it can't be drawn


@dataclass(frozen=True)
class ScoreShape:
    accuracy: float
    latency: float | None = None
    size: float | None = None


@dataclass(frozen=True)
class MeasuredShape:
    fp32: float
    best: float
    memory: list[int]
    batch: int
    threads: int
    cpu: str
    date: str
    confidence: float | None = None


@dataclass(frozen=True)
class ResultShape:
    met: bool | None = None
    goal: str = ""
    baseline: ScoreShape | None = None
    accuracy: float | None = None
    speed: float | None = None
    speed_range: tuple[float, float] | None = None
    faster: bool | None = None
    bytes: dict[str, float] | None = None
    evaluations: int = 0
    fp32_ops: list[str] = field(default_factory=list)
    precisions: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    pareto: list[int] = field(default_factory=list)
    stopped: str = ""
    model: str | None = None
    measured: MeasuredShape | None = None
    best: int | None = None
    drop: str = ""
    allowed: str = ""
    drop_range: str | None = None
    path: str | None = None
    usage: str = ""

    def known(self) -> dict[str, Any]:
        """Sizes, of which both are there or none is."""
        sizes = self.bytes or {}
        whole = {"fp32", "best"} <= set(sizes) and sizes["fp32"] > 0
        return {"bytes": sizes if whole else None}


@dataclass(frozen=True)
class TensorShape:
    op: tuple[str, str]
    what: str
    sqnr: float
    largest_error: float
    fp32_range: tuple[float, float]
    low_range: tuple[float, float]
    edges: tuple[float, float]
    fp32_counts: list[int]
    low_counts: list[int]
    shape: list[int]
    worst_samples: list[tuple[int, float]]


@dataclass(frozen=True)
class Shape:
    name: str
    framework: str
    result: ResultShape
    bar: float | None
    trials: list[TrialRow]
    ops: list[OpRow]
    environment: dict[str, Any] = field(default_factory=dict)
    config: str = ""
    profile: str = ""
    times: list[TimeRow] = field(default_factory=list)
    higher_is_better: bool = True
    state: State = "finished"
    tensors: list[TensorShape] = field(default_factory=list)
    graphs: dict[str, list[GraphNode]] = field(default_factory=dict)
    journal: int | None = None
    format: int = 1

    def __post_init__(self) -> None:
        for value in _numbers(self):
            if abs(value) > LARGEST:
                raise ValueError(f"{value:.3g} is not a valid figure")
        if any(n < 0 for t in self.tensors for n in (*t.fp32_counts, *t.low_counts)):
            raise ValueError("a histogram has a negative count")


def _numbers(value: Any) -> list[float]:
    """All numbers inside."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return []
    if isinstance(value, int | float):
        return [float(min(max(value, -(10**300)), 10**300)) if isinstance(value, int) else value]
    if isinstance(value, Mapping):
        return [number for item in value.values() for number in _numbers(item)]
    if isinstance(value, list | tuple):
        return [number for item in value for number in _numbers(item)]
    return [number for item in vars(value).values() for number in _numbers(item)]
