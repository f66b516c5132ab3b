"""Optuna's samplers as strategies: ask for a recipe, tell what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any

from lpot.core.errors import ConfigError
from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext
from lpot.core.trial import Trial
from lpot.strategy.order import is_fp32

SAMPLES = "samples"  # the parameter that chooses among numbers of calibration samples
WORST = -100.0  # a score that can't get worse: far from the bar all trials are equally bad
REPEATS = 200  # known recipes drawn in a row after which there is nothing new to find


def import_optuna(strategy: str) -> Any:
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            f"strategy {strategy} needs the package 'optuna', which can't be imported: "
            "pip install optuna, or use basic, which needs nothing",
            path="tuning.strategy.name",
        ) from None
    return optuna


def search(space: TuningSpace, context: StrategyContext, optuna: Any, sampler: Any) -> Proposals:
    """One dimension per op, float among its choices; everything at its most wanted first.

    Where the sampler repeats itself, a recipe that is new is drawn in its place.
    """
    with _quiet(optuna):
        study = optuna.create_study(direction="maximize", sampler=sampler)
    dimensions = _dimensions(space, optuna)
    draw = Random(context.seed)
    known: set[str] = set()
    study.enqueue_trial(dict.fromkeys(dimensions, 0))
    while True:
        asked = study.ask(dimensions)
        if not _is_new(space, asked.params, known):
            study.tell(asked, state=optuna.trial.TrialState.FAIL)  # no evaluation, so no value
            params = _unknown(space, dimensions, draw, known)
            if params is None:
                return
            study.enqueue_trial(params)
            asked = study.ask(dimensions)
        (trial,) = yield [_recipe(space, asked.params)]
        known.add(trial.recipe.digest)
        if trial.accuracy is None:
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(asked, value(trial, context))


def _unknown(
    space: TuningSpace, dimensions: Mapping[str, Any], draw: Random, known: set[str]
) -> dict[str, int] | None:
    """A draw that gives a new recipe; None when many did not."""
    for _ in range(REPEATS):
        params = {name: draw.choice(choices.choices) for name, choices in dimensions.items()}
        if _is_new(space, params, known):
            return params
    return None


def _is_new(space: TuningSpace, params: Mapping[str, int], known: set[str]) -> bool:
    recipe = _recipe(space, params)
    return recipe.digest not in known and not is_fp32(space, recipe)


def value(trial: Trial, context: StrategyContext) -> float:
    """What the sampler makes large: first the accuracy up to the bar, from there on the speed.

    Both are weighed as `accuracy_weight` and `latency_weight` say. The share of ops in float stands
    for the time: a measured one would differ from run to run, and the same seed must give the same
    trials.
    """
    assert trial.score is not None
    goal, baseline = context.goal, context.baseline
    allowed = abs(baseline - goal.bar(baseline)) or 1e-6 * max(1.0, abs(baseline))
    lost = goal.gain(baseline) - goal.gain(trial.score.accuracy)
    beyond = 0.0 if trial.met else lost / allowed
    floats = len(trial.recipe.float_ops) / max(1, len(trial.recipe.ops))
    accuracy = float(context.options.get("accuracy_weight", 1.0))
    latency = float(context.options.get("latency_weight", 1.0))
    return max(-accuracy * beyond, WORST) - latency * floats


def _dimensions(space: TuningSpace, optuna: Any) -> dict[str, Any]:
    found = {}
    for number, (key, options) in enumerate(space.choices.items()):
        if key not in space.followers and len(options) > 1:
            found[f"{number}"] = optuna.distributions.CategoricalDistribution(range(len(options)))
    if len(space.samples) > 1:
        sizes = range(len(space.samples))
        found[SAMPLES] = optuna.distributions.CategoricalDistribution(sizes)
    return found


def _recipe(space: TuningSpace, params: Mapping[str, int]) -> Recipe:
    start = space.default()
    changes: dict[OpKey, Any] = {}
    for number, (key, options) in enumerate(space.choices.items()):
        if f"{number}" in params:
            changes[key] = options[params[f"{number}"]]
    ops = {**start.ops, **changes}
    return Recipe(ops, space.samples[params.get(SAMPLES, 0)], start.repairs)


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Without Optuna's own line about a study that the user knows nothing of."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
