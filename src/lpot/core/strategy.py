"""What a strategy is: a generator that yields batches of recipes and receives their trials."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lpot.core.goal import Goal
from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.trial import Trial

Proposals = Generator[Sequence[Recipe], Sequence[Trial], None]


@dataclass(frozen=True, eq=False)
class StrategyContext:
    """All that a strategy may know besides the space. Its randomness comes from `seed` alone."""

    seed: int = 1978
    goal: Goal = field(default_factory=lambda: Goal(relative=0.01))
    baseline: float = 0.0
    ranking: Callable[[], Mapping[OpKey, float]] = dict  # harm by op, found without labels, once
    options: Mapping[str, Any] = field(default_factory=dict)  # the rest of tuning.strategy


Strategy = Callable[[TuningSpace, StrategyContext], Proposals]
