"""What tunings of one model in one process share: calibration, and the score of FP32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lpot.core.backend import Observations
from lpot.core.evaluation.identity import Identity
from lpot.core.files.history import History
from lpot.core.trial import Score

Observed = dict[int, Observations]


class Pool:
    """Kept in memory: calibration has samples in it, which are never written to disk."""

    def __init__(self) -> None:
        self._observed: dict[Any, Observed] = {}
        self._baselines: dict[Any, tuple[Score, Identity | None, Any, Any]] = {}

    def observed(self, key: Any, calibrate: Callable[[], Observed]) -> Observed:
        """The statistics of this model on these data; made once."""
        if key not in self._observed:
            self._observed[key] = calibrate()
        return self._observed[key]

    def lend_baseline(self, key: Any, history: History) -> None:
        """A history that has none is given FP32's score by the same evaluation."""
        if history.baseline is None and key in self._baselines:
            history.record_baseline(*self._baselines[key])

    def take_baseline(self, key: Any, history: History) -> None:
        if history.baseline is not None:
            pieces = history.pieces.get("")
            self._baselines[key] = (history.baseline, history.evaluator, history.memory, pieces)
