"""The lists of optimizers and losses as old scripts ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from lpot.backends import get_backend
from lpot.core.compress.trainers import Builder, Trainers
from lpot.jobs.tune.trainers import provided


class Listed:
    """Names of one framework: `[name]`, `in`, and `register(name, cls)` for your own."""

    known: ClassVar[Trainers]

    def __init__(self, framework: str) -> None:
        self.framework = provided(get_backend(framework))

    def __getitem__(self, name: str) -> Builder:
        return self.known.find(self.framework, name)

    def __contains__(self, name: str) -> bool:
        return name in self.known.names(self.framework)

    def __iter__(self) -> Iterator[str]:
        return iter(self.known.names(self.framework))

    def register(self, name: str, cls: Any) -> None:
        self.known.add(self.framework, name, cls)


def registered(known: Trainers, name: str, framework: str) -> Callable[[Any], Any]:
    def register(cls: Any) -> Any:
        for one in framework.split(","):
            known.add(one.strip(), name, cls)
        return cls

    return register
