"""Which of two trials is better. Decided here alone: in the loop, in reports, for `inspect`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lpot.core.goal import Goal, Objectives
from lpot.core.trial import Score, Trial

NARROW = 0.25  # of what may be lost: who has less of it left may have met the bar by luck
WORTH = 0.03  # of its speed: what a model that stays clear of the bar may cost
SMALLER = 0.98  # of another model's bytes: what is worth telling two models apart by


@dataclass(frozen=True)
class Preference:
    """The bar first; then the objectives among those that hold it, else the accuracy."""

    goal: Goal
    baseline: Score
    objectives: Objectives = field(default_factory=Objectives)

    def prefers(self, trial: Trial, best: Trial | None) -> bool:
        """Is this trial better than the best so far?"""
        if trial.score is None:
            return False
        if best is None or best.score is None:
            return True
        if trial.met != best.met:
            return trial.met
        if not trial.met:
            return self.goal.gain(trial.score.accuracy) > self.goal.gain(best.score.accuracy)
        new, old = (
            self.objectives.cost(score, self.baseline, self.goal)
            for score in (trial.score, best.score)
        )
        # A quick look at the clock tells no small differences, and none at all where nothing was
        # measured: the model with less FP32 wins then, and among equals one that is smaller.
        if self.objectives.alike(new, old):
            if self._safer(trial.score, best.score, new, old) != self._safer(
                best.score, trial.score, old, new
            ):
                return self._safer(trial.score, best.score, new, old)
            floats, before = len(trial.recipe.float_ops), len(best.recipe.float_ops)
            return floats < before or (floats == before and _is_smaller(trial.score, best.score))
        return new < old

    def _safer(self, score: Score, other: Score, cost: float, others: float) -> bool:
        """Is it worth its cost that this one stays clear of a bar which the other just meets?"""
        if abs(cost) > abs(others) * (1 + WORTH) and cost != others:
            return False
        if math.inf in (cost, others):
            return False
        fp32, goal = self.baseline.accuracy, self.goal
        allowed = abs(fp32 - goal.bar(fp32))
        room, its = (goal.gain(one.accuracy) - goal.gain(goal.bar(fp32)) for one in (score, other))
        return its < NARROW * allowed <= room

    def best(self, trials: Iterable[Trial]) -> Trial | None:
        """The best of some trials, in the order they were made; of one recipe the last counts."""
        found: Trial | None = None
        for trial in {trial.recipe.digest: trial for trial in trials if trial.score}.values():
            found = trial if self.prefers(trial, found) else found
        return found


def _is_smaller(score: Score, other: Score) -> bool:
    """Smaller on disk by more than names and padding make."""
    return bool(score.size and other.size and score.size < SMALLER * other.size)


def recorded(info: Mapping[str, Any], baseline: Score | None) -> Preference:
    """The preference of the run that wrote a history's header; what it does not tell is usual."""
    goal = recorded_goal(info) or Goal(relative=0.01)
    try:
        objectives = Objectives.from_json(info["objectives"])
    except (KeyError, TypeError, ValueError):
        objectives = Objectives()
    return Preference(goal, baseline or Score(0.0), objectives)


def recorded_goal(info: Mapping[str, Any]) -> Goal | None:
    """None for a history of an older version, which does not tell."""
    try:
        return Goal(**info["goal"])
    except (KeyError, TypeError, ValueError):
        return None
