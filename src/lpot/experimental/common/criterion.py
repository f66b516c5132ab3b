"""Door: the losses that a `train` section can name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lpot.core.compress.trainers import CRITERIONS
from lpot.jobs.component.trainers import Listed, registered


class Criterions(Listed):
    """`Criterions("pytorch")["CrossEntropyLoss"]({})()` gives torch's class and arguments."""

    known = CRITERIONS


def criterion_registry(criterion_type: str, framework: str) -> Callable[[Any], Any]:
    """Class decorator: a loss of your own, for the frameworks in a comma list."""
    return registered(CRITERIONS, criterion_type, framework)


__all__ = ["Criterions", "criterion_registry"]
