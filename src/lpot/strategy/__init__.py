"""Policies: one a file, each a generator of recipes that does no work itself."""

from __future__ import annotations

from collections.abc import Mapping

from lpot.core.errors import ConfigError, NotAvailableYet, did_you_mean
from lpot.core.strategy import Strategy
from lpot.strategy.basic import basic
from lpot.strategy.exhaustive import exhaustive
from lpot.strategy.random import random

STRATEGIES: Mapping[str, Strategy] = {
    "basic": basic,
    "exhaustive": exhaustive,
    "random": random,
}
# Names of the contract whose work is still to come.
LATER = (
    *("auto", "mse", "mse_v2", "bayesian", "tpe", "conservative", "hawq_v2"),
    *("automixedprecision", "auto_mixed_precision", "sigopt"),
)
_registered: dict[str, Strategy] = {}  # the per-process overlay of `register`


def register(name: str, strategy: Strategy) -> None:
    """Serve `tuning.strategy.name: <name>` by this generator function, in this process."""
    _registered[name] = strategy


def strategies() -> tuple[str, ...]:
    """Every name that `strategy:` may say here."""
    return (*STRATEGIES, *_registered)


def get_strategy(name: str | Strategy) -> Strategy:
    """The strategy of a name, or the generator function itself when one is passed."""
    if not isinstance(name, str):
        return name
    found = _registered.get(name) or STRATEGIES.get(name)
    if found is not None:
        return found
    if name in LATER:
        raise NotAvailableYet(f"strategy {name!r}", f"Use one of {', '.join(STRATEGIES)}.")
    known = strategies()
    raise ConfigError(
        f"unknown strategy {name!r}{did_you_mean(name, known)} (known: {', '.join(known)})",
        path="tuning.strategy.name",
    )
