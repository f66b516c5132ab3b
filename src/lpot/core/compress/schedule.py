"""How many weights are zero in which epoch, and how fast a training then moves them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lpot.core.loader import length_of


@dataclass(frozen=True)
class Schedule:
    """From `initial` in epoch `start` to `target` in the last epoch before `end`, in equal steps.

    >>> schedule = Schedule(0.0, 0.8, 0, 5)
    >>> [round(schedule.at(epoch), 2) for epoch in range(6)]
    [0.0, 0.2, 0.4, 0.6, 0.8, 0.8]
    """

    initial: float
    target: float
    start: int
    end: int
    frequency: int = 1  # epochs between steps

    def at(self, epoch: int) -> float:
        """The share of zeros in this epoch; none before the first."""
        if epoch < self.start:
            return 0.0
        last = self.end - 1
        if epoch >= last:
            return self.target
        done = (epoch - self.start) // self.frequency * self.frequency
        return self.initial + (self.target - self.initial) * done / (last - self.start)


def cosine(share: float) -> float:
    """From 1 at the start to 0 at the end.

    >>> [round(cosine(share), 2) for share in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]
    """
    return 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


def warm_cosine(step: int, steps: int) -> float:
    """A tenth of the way up, then down to 0 by a cosine.

    >>> [round(warm_cosine(step, 20), 2) for step in (0, 1, 2, 11, 20)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    up = max(1, steps // 10)
    return (step + 1) / up if step < up else cosine((step - up) / max(1, steps - up))


def learning_rate_factor(
    section: Mapping[str, Any], loader: object
) -> Callable[[int, int], float] | None:
    """What a `train` section says of the learning rate, by epoch and number of the batch.

    >>> factor = learning_rate_factor({"end_epoch": 2, "learning_rate_decay": "cosine"}, [0] * 4)
    >>> [round(factor(epoch, batch), 2) for epoch in range(2) for batch in (0, 2)]
    [1.0, 0.85, 0.5, 0.15]
    """
    if section.get("learning_rate_decay") is None:
        return None
    first = section.get("start_epoch", 0)
    epochs = section["end_epoch"] - first
    known = [count for count in (length_of(loader), section.get("iteration")) if count]
    batches = min(known) if known else None  # unknown: in steps of epochs

    def factor(epoch: int, batch: int) -> float:
        return cosine((epoch - first + (batch / batches if batches else 0.0)) / epochs)

    return factor
