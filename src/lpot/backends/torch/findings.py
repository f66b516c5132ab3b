"""What a calibration pass finds out about ops and captured parts, besides numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from lpot.core.numerics.observations import Named, Observations

NO_KERNEL_HERE = "none"  # among the executors that were chosen


@dataclass(frozen=True)
class Findings:
    """`leaders`: op → the first that read the same tensor; `norms`: op → the norm before it.

    `shown`: what a batch looks like, where the model's ops were found by running one.
    """

    ran: frozenset[str] = frozenset()
    trusted: frozenset[str] = frozenset()  # captured parts that compute what the original does
    uneven: frozenset[str] = frozenset()  # sums of tensors of different shapes
    estranged: frozenset[str] = frozenset()  # ops called in a way that no kernel can serve
    unlike: frozenset[str] = frozenset()  # ops with calls of very different ranges
    viewed: frozenset[str] = frozenset()  # convolutions whose output must lie as FP32's does
    kernels: Mapping[str, str] = field(default_factory=dict)
    norms: Mapping[str, str] = field(default_factory=dict)
    leaders: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)

    def named(self) -> Named:
        """As observations keep it."""
        found = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {n: dict(x) if isinstance(x, Mapping) else sorted(x) for n, x in found}

    @classmethod
    def of(cls, observations: Observations) -> Findings:
        own: Mapping[str, Any] = observations.own
        sets = ("ran", "trusted", "uneven", "estranged", "viewed", "unlike")
        given: dict[str, Any] = {n: frozenset(own.get(n, ())) for n in sets}
        given |= {n: dict(own.get(n, {})) for n in ("kernels", "norms", "leaders", "shown")}
        return cls(**given)
