"""Tree-structured Parzen estimators: which choices stood in good recipes, which in bad ones."""

from __future__ import annotations

from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, policy
from lpot.strategy.ask_tell import STARTUP, import_optuna, search


@policy()
def tpe(space: TuningSpace, context: StrategyContext) -> Proposals:
    """Optuna's TPE sampler. Ends when it finds nothing new; `max_trials` and time end it sooner."""
    optuna = import_optuna("tpe")
    sampler = optuna.samplers.TPESampler(seed=context.seed, n_startup_trials=STARTUP)
    yield from search(space, context, optuna, sampler)
