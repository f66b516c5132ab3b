"""Door: `lpot.strategy.strategy`, where users' own strategy classes come from."""

from __future__ import annotations

from typing import TypeVar

from lpot.strategy import STRATEGIES, register
from lpot.strategy.user_class import TuneStrategy, registered_name, strategy_of

Class = TypeVar("Class", bound=type[TuneStrategy])


def strategy_registry(cls: Class) -> Class:
    """Class decorator: `MineTuneStrategy` serves `tuning.strategy.name: mine` in this process."""
    register(registered_name(cls), strategy_of(cls))
    return cls


__all__ = ["STRATEGIES", "TuneStrategy", "strategy_registry"]
