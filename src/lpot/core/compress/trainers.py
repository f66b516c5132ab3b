"""Optimizers and losses that a `train` section can name: a framework's, and the user's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lpot.core.errors import ConfigError, TrainingError, a_kind, did_you_mean
from lpot.core.framework import FRAMEWORKS, family

Options = Mapping[str, Any]
Made = tuple[Any, dict[str, Any]]  # the framework's class, and its keyword arguments
Builder = Callable[[Options], Callable[[], Made]]


class Named:
    """A class of a framework under the names that the yaml has for its options.

    >>> Named(dict, {"learning_rate": "lr"})({"learning_rate": 0.1})()
    (<class 'dict'>, {'lr': 0.1})
    """

    def __init__(self, kind: Any, renamed: Mapping[str, str] | None = None) -> None:
        self.kind, self.renamed = kind, renamed or {}

    def __call__(self, options: Options | None = None) -> Callable[[], Made]:
        given = {self.renamed.get(name, name): value for name, value in (options or {}).items()}
        return lambda: (self.kind, given)


class Trainers:
    """What can be named, by framework. A name of the user's may be given again: the last counts.

    >>> some = Trainers("optimizer")
    >>> some.add("pytorch_fx", "Mine", Named(dict))
    >>> some.names("pytorch")
    ('Mine',)
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._known: dict[str, dict[str, Builder]] = {}
        self._ours: set[tuple[str, str]] = set()

    def provide(self, framework: str, builders: Mapping[str, Builder]) -> None:
        """A backend's own."""
        self._known.setdefault(framework, {}).update(builders)
        self._ours.update((framework, name) for name in builders)

    def add(self, framework: str, name: str, given: Any) -> None:
        """The user's: a class of the framework, or one in the original's form, which takes the
        options and, called, gives class and arguments."""
        place = family(framework)
        if place not in FRAMEWORKS:
            raise ConfigError(
                f"{self.what} {name!r} is registered for the unknown framework {framework!r}"
                f"{did_you_mean(framework, FRAMEWORKS)}; expected pytorch or tensorflow"
            )
        if (place, name) in self._ours:
            raise ConfigError(f"there is a built-in {self.what} {name!r}: choose another name")
        if not callable(given):
            raise ConfigError(f"{self.what} {name!r}: given {a_kind(given)}, expected a class")
        self._known.setdefault(place, {})[name] = given

    def names(self, framework: str) -> tuple[str, ...]:
        return tuple(self._known.get(family(framework), ()))

    def find(self, framework: str, name: str, path: str = "", where: str = "") -> Builder:
        known = self._known.get(family(framework), {})
        if name not in known:
            raise ConfigError(
                f"unknown {self.what} {name!r}{did_you_mean(name, known) or '.'} "
                f"Available for {framework}: {', '.join(known) or 'none'}; register your own with "
                f"{self.what}_registry",
                path,
                where,
            )
        return known[name]

    def make(self, framework: str, name: str, options: Options | None, base: type) -> Made:
        """The class behind a name and its arguments; `base` is what the framework's classes are."""
        builder: Any = self.find(framework, name)
        if isinstance(builder, type) and issubclass(builder, base):
            return builder, dict(options or {})
        made = builder(dict(options or {}))()
        if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], Mapping)):
            raise ConfigError(
                f"{self.what} {name!r} gave {made!r}, expected a class and a dict of its arguments"
            )
        return made[0], dict(made[1])


def check_loss(loss: float, epoch: int, batch: int) -> None:
    """
    >>> check_loss(float("nan"), 0, 3)
    Traceback (most recent call last):
    ...
    lpot.core.errors.TrainingError: the loss became nan in batch 3 of epoch 0: lower learning_rate
    """
    if math.isfinite(loss):
        return
    if epoch == batch == 0:  # nothing was learnt yet
        raise TrainingError(
            f"the loss of the very first batch is {loss}: look for values that are no numbers in "
            "the data, in the model's outputs and, if there is one, in the teacher's"
        )
    raise TrainingError(
        f"the loss became {loss} in batch {batch} of epoch {epoch}: lower learning_rate"
    )


def check_learns(learns: bool, remedy: str) -> None:
    """
    >>> check_learns(False, "model.trainable = True")
    Traceback (most recent call last):
    ...
    lpot.core.errors.TrainingError: all weights of the model are frozen, so that it learns \
nothing: model.trainable = True before it is trained
    """
    if not learns:
        raise TrainingError(
            "all weights of the model are frozen, so that it learns nothing: "
            f"{remedy} before it is trained"
        )


def check_alike(student: Iterable[int], teacher: Iterable[int]) -> None:
    """
    >>> check_alike((8, 10), (8, 7))
    Traceback (most recent call last):
    ...
    lpot.core.errors.TrainingError: the teacher gives [8, 7] where the student gives [8, 10]: both \
must have the same outputs
    """
    given, wanted = list(student), list(teacher)
    if given != wanted:
        raise TrainingError(
            f"the teacher gives {wanted} where the student gives {given}: both must have the same "
            "outputs"
        )


OPTIMIZERS, CRITERIONS = Trainers("optimizer"), Trainers("criterion")
