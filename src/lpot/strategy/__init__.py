"""Policies: one a file, each a generator of recipes that does no work itself."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from lpot.core.errors import ConfigError, did_you_mean
from lpot.core.strategy import Policy, Strategy
from lpot.strategy.auto import auto
from lpot.strategy.basic import basic
from lpot.strategy.bayesian import bayesian, tpe
from lpot.strategy.conservative import conservative
from lpot.strategy.exhaustive import exhaustive
from lpot.strategy.level import Level, at_level
from lpot.strategy.mixed_bits import mixed_bits
from lpot.strategy.mixed_precision import auto_mixed_precision
from lpot.strategy.mse import mse
from lpot.strategy.mse_v2 import hawq_v2, mse_v2
from lpot.strategy.random import random

STRATEGIES: Mapping[str, Policy] = {
    "basic": basic,
    "auto": auto,
    "mse": mse,
    "mse_v2": mse_v2,
    "bayesian": bayesian,
    "tpe": tpe,
    "exhaustive": exhaustive,
    "random": random,
    "conservative": conservative,
    "hawq_v2": hawq_v2,
    "mixed_bits": mixed_bits,
    "automixedprecision": auto_mixed_precision,
    "auto_mixed_precision": auto_mixed_precision,
    "sigopt": basic,  # its service has ended: see config/availability.py for what users are told
}
PACKAGES = {"bayesian": "optuna", "tpe": "optuna"}
_registered: dict[str, Policy] = {}  # the per-process overlay of `register`


def register(name: str, strategy: Strategy) -> None:
    """Serve `tuning.strategy.name: <name>` by this generator function, in this process."""
    _registered[name] = as_policy(strategy)


def strategies() -> tuple[str, ...]:
    """Every name that `strategy:` may say here."""
    return (*STRATEGIES, *_registered)


def as_policy(strategy: Strategy) -> Policy:
    """A user's generator function: nothing more is known of it."""
    return strategy if isinstance(strategy, Policy) else Policy(strategy)


def get_strategy(name: str | Strategy, level: Level = 1) -> Policy:
    """The strategy of a name, or the generator function itself when one is passed.

    `level` is `quant_level`: 0 for conservative, 1 for the strategy, auto for both.
    """
    if not isinstance(name, str):
        return at_level(level, as_policy(name))
    found = _registered.get(name) or STRATEGIES.get(name)
    if found is None:
        known = strategies()
        raise ConfigError(
            f"unknown strategy {name!r}{did_you_mean(name, known)} (known: {', '.join(known)})",
            path="tuning.strategy.name",
        )
    package = PACKAGES.get(name)
    if package is not None and name not in _registered and find_spec(package) is None:
        raise ConfigError(  # now, not after the baseline was evaluated for an hour
            f"strategy {name} needs the package {package!r}, which is not installed: "
            f"pip install {package}, or use basic, which needs no other package",
            path="tuning.strategy.name",
        )
    return at_level(level, found)
