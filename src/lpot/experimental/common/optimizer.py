"""Door: the optimizers that a `train` section can name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lpot.core.compress.trainers import OPTIMIZERS
from lpot.jobs.component.trainers import Listed, registered


class Optimizers(Listed):
    """`Optimizers("pytorch")["SGD"]({"learning_rate": 0.1})()` gives class and arguments."""

    known = OPTIMIZERS


def optimizer_registry(optimizer_type: str, framework: str) -> Callable[[Any], Any]:
    """Class decorator: an optimizer of your own, for the frameworks in a comma list."""
    return registered(OPTIMIZERS, optimizer_type, framework)


__all__ = ["Optimizers", "optimizer_registry"]
