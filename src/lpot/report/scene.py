"""What a progress view knows of the work going on, and how much time is left of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from lpot.core.goal import Goal
from lpot.core.trial import Score, Trial


@dataclass
class Scene:
    """The phase under way, and the search around it. Changed by a listener as it hears."""

    clock: Callable[[], float] = time.monotonic
    name: str = ""
    total: int | None = None
    done: int = 0
    since: float = 0.0
    first: tuple[int, float] | None = None  # the first step seen, and when it was done
    is_trial: bool = False
    expected: float | None = None  # seconds, where earlier work of the same kind tells
    most: int | None = None  # trials
    deadline: float | None = None
    finished: int = 0
    goal: Goal | None = None
    baseline: Score | None = None
    best: Trial | None = None
    spent: list[float] = field(default_factory=list)  # seconds of each trial done in this run

    def enter(
        self,
        name: str,
        total: int | None = None,
        expected: float | None = None,
        is_trial: bool = False,
    ) -> None:
        self.name, self.total, self.done = name, total, 0
        self.since, self.expected, self.is_trial = self.clock(), expected, is_trial
        self.first = None

    def step(self, done: int) -> None:
        self.done = done
        if self.first is None and done:
            self.first = (done, self.clock())

    def plan(self, trials: int, timeout: float) -> None:
        self.most, self.finished = trials, 0
        self.deadline = self.clock() + timeout if timeout > 0 else None

    def hear(self, trial: Trial, best: Trial | None) -> None:
        self.finished += 1
        self.best = best
        if not trial.recalled:
            self.spent.append(trial.seconds)

    @property
    def elapsed(self) -> float:
        return self.clock() - self.since

    @property
    def trial_seconds(self) -> float | None:
        """How long a trial takes: as the earlier ones, or as the baseline took."""
        if self.spent:
            return sum(self.spent) / len(self.spent)
        return None if self.baseline is None else self.baseline.seconds

    @property
    def share(self) -> float | None:
        """The part of the phase that is done, from 0 to 1; None where nobody can tell."""
        if self.total:
            return min(1.0, self.done / self.total)
        if self.expected:
            # An estimate that has run out says "nearly", not "done".
            return min(0.99, self.elapsed / self.expected)
        return None

    @property
    def left(self) -> float | None:
        """Seconds left of the phase."""
        # The first step has the start of processes and the warming up in it: it tells nothing.
        if self.total and self.first is not None and self.done > self.first[0]:
            each = (self.clock() - self.first[1]) / (self.done - self.first[0])
            return each * max(0, self.total - self.done)
        return None if self.expected is None else max(0.0, self.expected - self.elapsed)

    @property
    def search_left(self) -> float | None:
        """Seconds left of the search at most; None outside of one."""
        each = self.trial_seconds
        if self.most is None or each is None:
            return None
        most = each * max(0, self.most - self.finished)
        return most if self.deadline is None else min(most, max(0.0, self.deadline - self.clock()))
