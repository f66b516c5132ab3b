"""A Gaussian process over recipes: where it expects much, or knows little, it looks next."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, policy
from lpot.strategy.ask_tell import STARTUP, import_optuna, search

logger = logging.getLogger(__name__)

PACKAGES = ("torch", "scipy")  # what Optuna's Gaussian process is made of


@policy()
def bayesian(space: TuningSpace, context: StrategyContext) -> Proposals:
    """Optuna's GP sampler. Ends when it finds nothing new; `max_trials` and time end it sooner."""
    optuna = import_optuna("bayesian")
    yield from search(space, context, optuna, _sampler(optuna, context.seed))


def _sampler(optuna: Any, seed: int) -> Any:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        logger.warning(
            "bayesian: the Gaussian process needs %s (pip install %s); the Parzen estimators of "
            "tpe are used instead",
            " and ".join(missing),
            " ".join(missing),
        )
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
    return optuna.samplers.GPSampler(seed=seed, n_startup_trials=STARTUP)


# -- Tree-structured Parzen estimators: which choices stood in good recipes, which in bad ones.


@policy()
def tpe(space: TuningSpace, context: StrategyContext) -> Proposals:
    """Optuna's TPE sampler. Ends when it finds nothing new; `max_trials` and time end it sooner."""
    optuna = import_optuna("tpe")
    sampler = optuna.samplers.TPESampler(seed=context.seed, n_startup_trials=STARTUP)
    yield from search(space, context, optuna, sampler)
