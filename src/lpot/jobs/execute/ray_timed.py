"""Accuracy is evaluated anywhere on a cluster; times are measured on nodes of the target CPU.

One worker has such a node to itself and does nothing but build and time models; those that evaluate
accuracy keep away from these nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from lpot.core.recipe import Recipe
from lpot.core.trial import Score, State, Trial
from lpot.core.tune import Attempt, Bench, Made, Numbered, guarded
from lpot.jobs.execute.kit import Kit
from lpot.jobs.execute.ray import RayExecutor
from lpot.jobs.execute.ray_cluster import Cluster, Demand


class TimingKit(Kit):
    """A kit whose attempts are timed and not evaluated."""

    def attempt(self, bench: Bench, number: int, recipe: Recipe) -> Trial:
        made = guarded(lambda: self._timed(bench, recipe))
        if isinstance(made, Exception):
            return Trial.failed(number, recipe, made, 0.0)
        return Trial(number, recipe, State.DONE, made, met=False)

    def _timed(self, bench: Bench, recipe: Recipe) -> Score:
        model = bench.backend.build(bench.model, recipe, bench.observe(recipe.samples))
        score = bench.measure(model, Score(0.0))
        model.close()
        return score


class TimedExecutor:
    """What the workers find, with the times that the timer measures."""

    def __init__(self, workers: RayExecutor, timer: RayExecutor, has_budget: bool) -> None:
        self._workers = workers
        self._timer = timer
        self._has_budget = has_budget
        self.note: Callable[[str], None] = lambda text: None

    def __call__(self, attempt: Attempt, recipes: Iterable[Numbered]) -> Iterator[Made]:
        for trial, model in self._workers(attempt, recipes):
            yield self._timed(trial, attempt), model

    def close(self) -> None:
        self._timer.close()
        self._workers.close()

    def _timed(self, trial: Trial, attempt: Attempt) -> Trial:
        """As `attempt` in core/tune.py has it: those that meet the bar, or all that may be best."""
        score = trial.score
        wanted = trial.met or self._has_budget
        if score is None or score.raced_out or not wanted:
            return trial
        for timed, _ in self._timer(attempt, [(trial.number, trial.recipe)]):
            if timed.score is not None and timed.score.latency is not None:
                return replace(trial, score=replace(score, latency=timed.score.latency))
            self.note(f"trial {trial.number} could not be timed: {timed.error or 'no time'}")
        return trial


def timer_demand(cluster: Cluster, demand: Demand, labels: Mapping[str, str]) -> Demand:
    """A whole node of that kind; what it has is known once there is one."""
    return replace(demand, labels=dict(labels), num_cpus=cluster.cpus_of(labels), memory=0)


def elsewhere(demand: Demand, labels: Mapping[str, str]) -> Demand:
    """The demand of workers that keep away from nodes with these labels."""
    away = {name: f"!{value}" for name, value in labels.items()}
    return replace(demand, labels={**away, **demand.labels})
