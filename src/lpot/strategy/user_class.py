"""A strategy class of the original, with `next_tune_cfg`, served as one of our generators."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from lpot.core.errors import ConfigError, a_kind
from lpot.core.recipe import OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, Strategy, StrategyContext
from lpot.core.trial import Trial

TuneConfig = Mapping[str, Any]
SIDES = ("activation", "weight")
ENDING = "TuneStrategy"


class TuneStrategy:
    """Base of users' own strategies: write `next_tune_cfg` and register the class.

    `next_tune_cfg` yields `{"calib_iteration": n, "op": {(name, type): {"activation": {…},
    "weight": {…}}}}`, put together from `opwise_tune_cfgs`. After each yield `last_tune_result` is
    (accuracy, [seconds]), or None for a trial that failed. Ops that are left out take the
    config they would have by default.
    """

    space: ClassVar[TuningSpace]
    context: ClassVar[StrategyContext]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.opwise_tune_cfgs = {
            (key.name, key.kind): [_as_dict(choice) for choice in choices]
            for key, choices in self.space.choices.items()
        }
        self.opwise_quant_cfgs = {
            (key.name, key.kind): [_as_dict(choice) for choice in self.space.low_choices(key)]
            for key in self.space.choices
        }
        self.calib_iter = list(self.space.samples)
        self.random_seed = self.context.seed
        self.baseline = (self.context.baseline, [self.context.latency or 0.0])
        self.last_tune_result: tuple[float, list[float]] | None = None
        self.best_tune_result: tuple[float, list[float]] | None = None

    def next_tune_cfg(self) -> Iterator[TuneConfig]:
        raise ConfigError(f"{type(self).__name__} has no next_tune_cfg: write one that yields")

    def _hear(self, trial: Trial) -> None:
        if trial.accuracy is None:
            self.last_tune_result = None
            return
        self.last_tune_result = (trial.accuracy, [trial.seconds])
        gain = self.context.goal.gain
        best = -math.inf if self.best_tune_result is None else gain(self.best_tune_result[0])
        if trial.met and gain(trial.accuracy) > best:
            self.best_tune_result = self.last_tune_result


def strategy_of(cls: type[TuneStrategy]) -> Strategy:
    """The generator behind a class; one object of the class lives as long as one search."""

    def strategy(space: TuningSpace, context: StrategyContext) -> Proposals:
        bound = type(cls.__name__, (cls,), {"space": space, "context": context})
        policy = bound(None, None, None)  # the original hands over a model, a conf and a loader
        wishes = policy.next_tune_cfg()
        if not isinstance(wishes, Iterable):
            raise ConfigError(f"next_tune_cfg of {cls.__name__} gives {wishes!r}: let it yield")
        for wish in wishes:
            (trial,) = yield [recipe_of(space, wish)]
            policy._hear(trial)

    return strategy


def recipe_of(space: TuningSpace, wish: TuneConfig) -> Recipe:
    """The recipe that a `tune_cfg` asks for."""
    if not isinstance(wish, Mapping):
        raise ConfigError(
            f"next_tune_cfg yields {a_kind(wish)}, expected a dict with `op` and `calib_iteration`"
        )
    keys = {(key.name, key.kind): key for key in space.choices}
    changes = {}
    for name, config in dict(wish.get("op", {})).items():
        key = keys.get(tuple(name))
        if key is None:
            raise ConfigError(
                f"next_tune_cfg names the op {name!r}, which has no choices: take the "
                "keys of opwise_tune_cfgs"
            )
        changes[key] = _choice(space, key, config)
    start = space.default()
    return Recipe({**start.ops, **changes}, _samples(space, wish), start.repairs)


def _samples(space: TuningSpace, wish: TuneConfig) -> int:
    """The nearest of the numbers that are calibrated with: the original counts batches here."""
    given = wish.get("calib_iteration", space.samples[0])
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ConfigError(f"next_tune_cfg: calib_iteration is {given!r}, expected a number")
    return min(space.samples, key=lambda count: abs(count - given))


def _choice(space: TuningSpace, key: OpKey, wish: Mapping[str, Any]) -> OpConfig:
    for choice in space.choices[key]:
        offered = _as_dict(choice)
        if all(_fits(offered.get(side, {}), wish[side]) for side in SIDES if side in wish):
            return choice
    offers = [_as_dict(choice) for choice in space.choices[key]]
    raise ConfigError(f"next_tune_cfg asks {wish!r} of op {key}; it can be one of {offers}")


def _fits(offered: Mapping[str, Any], wish: Mapping[str, Any]) -> bool:
    return all(offered.get(name, value) == value for name, value in wish.items())


def _as_dict(config: OpConfig) -> dict[str, dict[str, Any]]:
    """In the original's words, `bit` among them."""
    sides = {"activation": config.activation, "weight": config.weight}
    return {side: _words(tensor) for side, tensor in sides.items() if tensor is not None}


def _words(tensor: TensorConfig) -> dict[str, Any]:
    words = {
        "dtype": tensor.dtype,
        "scheme": tensor.scheme,
        "granularity": tensor.granularity,
        "algorithm": tensor.algorithm,
        "bit": None if tensor.bits is None else float(tensor.bits),
    }
    return {name: value for name, value in words.items() if value is not None}


def registered_name(cls: type[Any]) -> str:
    """
    >>> registered_name(type("AbcTuneStrategy", (), {}))
    'abc'
    """
    if not cls.__name__.endswith(ENDING) or cls.__name__ == ENDING:
        raise ConfigError(
            f"{cls.__name__} can't be registered: the name of a strategy class ends with {ENDING}, "
            f"and the part before it is its name in yaml, such as Mine{ENDING} for `mine`"
        )
    return cls.__name__.removesuffix(ENDING).lower()
