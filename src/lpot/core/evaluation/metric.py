"""A metric as an evaluation sees it: three verbs, and what it may tell besides its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from lpot.core.evaluation.tally import UNBOUNDED, Bounds, Tally


class Metric(Protocol):
    def reset(self) -> None: ...
    def update(self, preds: Any, labels: Any) -> None: ...
    def result(self) -> Any: ...


@dataclass(frozen=True, eq=False)
class Told:
    """What a metric tells; of a user's own, which need not tell anything, the usual is assumed."""

    metric: Any

    def _told(self, name: str, usual: Any) -> Any:
        return getattr(self.metric, name, usual)

    @property
    def higher_is_better(self) -> bool:
        return bool(self._told("higher_is_better", True))

    @property
    def compares_labels(self) -> bool:
        """Or else with what the FP32 model says."""
        return bool(self._told("compare_label", True))

    @property
    def is_mean(self) -> bool:
        """Is the result the mean over samples?"""
        return bool(self._told("is_mean", False))

    @property
    def bounds(self) -> Bounds:
        """Of a sample's score."""
        low, high = self._told("bounds", UNBOUNDED)
        return float(low), float(high)

    @property
    def latest(self) -> Any:
        """Scores by sample of the latest update; None where there are none."""
        return self._told("latest", None)

    @property
    def pieces(self) -> Any:
        """What to resample from, where it is not scores by sample."""
        return self._told("pieces", None)

    @property
    def tally(self) -> Tally | None:
        """Where it stands; None when its result is not a mean over samples."""
        found = self._told("tally", None)
        return None if found is None else Tally(int(found[0]), float(found[1]), self.bounds)
