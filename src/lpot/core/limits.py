"""When to stop: time, trials, failures, and the user's wish. Time is monotonic."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

BAR_IS_MET = "the bar is met"


@dataclass(frozen=True)
class Limits:
    """`timeout` 0 means: stop at the first recipe that meets the bar."""

    timeout: float = 0.0
    max_trials: int = 100
    max_failures: int = 5  # in a row
    performance_only: bool = False

    def most_trials(self, proposed: int | None) -> int:
        """The most trials there can be of so many proposals; None: of any number."""
        most = 1 if self.performance_only else self.max_trials
        return most if proposed is None else min(most, proposed)


class Watch:
    """Answers 'must I stop, and why' during one run."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._start = clock()
        self._stop: str | None = None
        self.leave: Callable[[], None] = lambda: None  # says that what is begun is given up

    @property
    def elapsed(self) -> float:
        return self._clock() - self._start

    @property
    def time_is_up(self) -> bool:
        return self.limits.timeout > 0 and self.elapsed >= self.limits.timeout

    def request_stop(self, reason: str) -> None:
        """Asked for from outside (Ctrl-C once): the trial in flight is finished first."""
        self._stop = reason

    @property
    def requested(self) -> str | None:
        """Why somebody asked to stop, None if nobody did."""
        return self._stop

    def over(self, finished: int, failures: int, met: bool) -> str | None:
        """The reason to stop now, or None. `failures` counts the last ones in a row."""
        if self._stop is not None:
            return self._stop
        if met and self.limits.timeout == 0:
            return BAR_IS_MET
        if self.time_is_up:
            return f"timeout of {self.limits.timeout:g} s reached"
        if finished >= self.limits.max_trials:
            return f"max_trials of {self.limits.max_trials} reached"
        if self.limits.performance_only and finished >= 1:
            return "performance_only: one trial"
        if failures >= self.limits.max_failures:
            return f"{failures} trials failed in a row"
        return None
