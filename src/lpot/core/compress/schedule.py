"""How many weights are zero in which epoch."""

from __future__ import annotations

from dataclasses import dataclass


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
