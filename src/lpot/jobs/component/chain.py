"""One report for a chain of components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lpot.core.compress.sparsity import Sparsity
from lpot.core.results.result import Result
from lpot.jobs.benchmark.plan import ACCURACY
from lpot.jobs.component.benchmarker import Benchmarker
from lpot.jobs.component.component import Combined
from lpot.jobs.component.distiller import Distiller
from lpot.jobs.compress.weights import PruneResult


@dataclass(frozen=True)
class Step:
    """One component of a chain, and what came of it, as far as it tells."""

    name: str
    before: float | None = None  # accuracy
    after: float | None = None
    met: bool | None = None
    remark: str = ""

    @classmethod
    def of(cls, component: Any) -> Step:
        name, result = type(component).__name__, getattr(component, "result", None)
        if isinstance(component, Combined):
            name = " with ".join(type(one).__name__ for one in component.parts)
        if isinstance(component, Benchmarker):
            found = component.results.get(ACCURACY)
            speeds = [] if component.result is None else component.result.models[:1]
            figures = [f"{one.throughput:.1f} samples a second" for one in speeds if one.timing]
            return cls(name, None, found and found.accuracy, None, ", ".join(figures))
        if isinstance(result, Result):
            remarks = [f"{count} {word}" for word, count in result.precisions.items()]
            if isinstance(component, Combined) and component.pruned is not None:
                remarks.append(_zeros(component.pruned.sparsity))
            base = None if result.baseline is None else result.baseline.accuracy
            return cls(name, base, result.accuracy, result.met, ", ".join(remarks))
        if isinstance(result, PruneResult):
            share = _zeros(result.sparsity)
            return cls(name, result.baseline, result.accuracy, result.met, share)
        if isinstance(component, Distiller):
            teacher, sparsity = component.teacher_accuracy, component.sparsity
            remarks = [] if teacher is None else ["compared with the teacher"]
            remarks += [] if sparsity is None else [_zeros(sparsity)]
            return cls(name, teacher, component.accuracy, component.met, ", ".join(remarks))
        return cls(name)


def _zeros(sparsity: Sparsity) -> str:
    return f"{100 * sparsity.share:.1f} % zeros"


def chain_report(steps: Sequence[Step]) -> str:
    """A line for each step.

    >>> print(chain_report([Step("Pruning", 0.9, 0.89, True, "50.0 % zeros")]))
    1. Pruning: 0.9000 to 0.8900, meets the bar, 50.0 % zeros
    """
    lines = []
    for number, step in enumerate(steps, 1):
        parts = []
        if step.after is not None:
            start = "" if step.before is None else f"{step.before:.4f} to "
            parts.append(f"{start}{step.after:.4f}")
        if step.met is not None:
            parts.append("meets the bar" if step.met else "misses the bar")
        parts += [step.remark] if step.remark else []
        lines.append(f"{number}. {step.name}: {', '.join(parts) or 'done'}")
    return "\n".join(lines)
