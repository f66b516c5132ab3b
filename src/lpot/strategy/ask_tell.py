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
from lpot.strategy.prior import draw_config, float_chances, ranked_first

SAMPLES = "samples"  # the parameter that chooses among numbers of calibration samples
STARTUP = 10  # trials before the sampler has something to go by
WORST = -100.0  # a score that can't get worse: far from the bar all trials are equally bad
REPEATS = 200  # known recipes drawn in a row after which there is nothing new to find


def import_optuna(strategy: str) -> Any:
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            f"strategy {strategy} needs the package 'optuna', which can't be imported: "
            "pip install optuna, or use basic, which needs no other package",
            path="tuning.strategy.name",
        ) from None
    return optuna


def search(space: TuningSpace, context: StrategyContext, optuna: Any, sampler: Any) -> Proposals:
    """One dimension per op, float among its choices.

    What `basic` tries comes first, then draws by the ranking: from these the sampler learns. Where
    it repeats itself, a recipe that is new is drawn in its place.
    """
    begun = yield from ranked_first(space, context)
    with _quiet(optuna):
        study = optuna.create_study(direction="maximize", sampler=sampler)
    desk = _Desk(space, context, optuna)
    known = {trial.recipe.digest for trial in begun}
    for trial in begun:
        desk.tell(study, trial)
    drawn = max(0, STARTUP - len(begun))
    while True:
        asked = None if drawn > 0 else study.ask(desk.dimensions)
        drawn -= 1
        if asked is None or not desk.is_new(asked.params, known):
            if asked is not None:  # no evaluation, so no value
                study.tell(asked, state=optuna.trial.TrialState.FAIL)
            params = desk.unknown(known)
            if params is None:
                return
            study.enqueue_trial(params)
            asked = study.ask(desk.dimensions)
        (trial,) = yield [_recipe(space, asked.params)]
        known.add(trial.recipe.digest)
        if trial.accuracy is None:
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(asked, value(trial, context))


class _Desk:
    """Recipes as Optuna's parameters, and draws of them."""

    def __init__(self, space: TuningSpace, context: StrategyContext, optuna: Any) -> None:
        self.space = space
        self.context = context
        self.optuna = optuna
        self.dimensions = _dimensions(space, optuna)
        self.random = Random(context.seed)
        self.chances = float_chances(space, context)

    def tell(self, study: Any, trial: Trial) -> None:
        """A trial that was made without the sampler's asking."""
        if trial.accuracy is None:
            return
        params: dict[str, int] = {}
        for name, key in _names(self.space).items():
            params[name] = self.space.choices[key].index(trial.recipe.ops[key])
        if SAMPLES in self.dimensions:
            params[SAMPLES] = self.space.samples.index(trial.recipe.samples)
        create = self.optuna.trial.create_trial
        score = value(trial, self.context)
        study.add_trial(create(params=params, distributions=self.dimensions, value=score))

    def unknown(self, known: set[str]) -> dict[str, int] | None:
        """A draw that gives a new recipe; None when many did not."""
        for _ in range(REPEATS):
            params = {
                name: options.index(draw_config(key, options, self.chances, self.random))
                for name, key in _names(self.space).items()
                if (options := self.space.choices[key])
            }
            if SAMPLES in self.dimensions:
                params[SAMPLES] = self.random.randrange(len(self.space.samples))
            if self.is_new(params, known):
                return params
        return None

    def is_new(self, params: Mapping[str, int], known: set[str]) -> bool:
        recipe = _recipe(self.space, params)
        return recipe.digest not in known and not is_fp32(self.space, recipe)


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


def _names(space: TuningSpace) -> dict[str, OpKey]:
    """The parameters that choose among the configs of an op."""
    return {
        f"{number}": key
        for number, (key, options) in enumerate(space.choices.items())
        if key not in space.followers and len(options) > 1
    }


def _dimensions(space: TuningSpace, optuna: Any) -> dict[str, Any]:
    choose = optuna.distributions.CategoricalDistribution
    found = {name: choose(range(len(space.choices[key]))) for name, key in _names(space).items()}
    if len(space.samples) > 1:
        found[SAMPLES] = choose(range(len(space.samples)))
    return found


def _recipe(space: TuningSpace, params: Mapping[str, int]) -> Recipe:
    start = space.default()
    names = _names(space)
    changes = {
        names[name]: space.choices[names[name]][at] for name, at in params.items() if name in names
    }
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
