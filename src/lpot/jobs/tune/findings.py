"""What a run found out about its ops, kept with it.

Times and sensitivities come out a little different when they are measured again, and a search that
is replayed must propose the recipes of before. Nothing is measured twice then, either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from lpot.core.cache import UNUSABLE, keep, recall
from lpot.core.recipe import OpConfig, OpKey, Recipe
from lpot.core.strategy import Tradeoff, Tradeoffs

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class Findings:
    """Answers by question and recipe. A file that can't be read or written is only a slower one."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._known: dict[str, Any] = recall(place, dict) or {}

    def numbers(
        self, question: str, recipe: Recipe, ask: Callable[[], Mapping[OpKey, float]]
    ) -> dict[OpKey, float]:
        """A number for each op: those of before, or those that `ask` gives now."""
        return self._answer(question, recipe, ask, _numbers_to_json, _numbers_from_json)

    def tradeoffs(self, recipe: Recipe, ask: Callable[[], Tradeoffs]) -> Tradeoffs:
        return self._answer("tradeoffs", recipe, ask, _tradeoffs_to_json, _tradeoffs_from_json)

    def _answer(
        self,
        question: str,
        recipe: Recipe,
        ask: Callable[[], Mapping[OpKey, Any]],
        to_json: Callable[[Any], Any],
        from_json: Callable[[Any], Answer],
    ) -> Answer:
        name = f"{question} {recipe.digest}"
        if name in self._known:
            try:
                return from_json(self._known[name])
            except UNUSABLE as error:
                logger.info("%s: %s can't be used (%s)", self.place, name, error)
        found = ask()
        if found:
            self._known[name] = to_json(found)
            keep(self.place, self._known, "findings are")
        return from_json(to_json(found))


def _numbers_to_json(numbers: Mapping[OpKey, float]) -> list[Any]:
    return [[key.name, key.kind, float(value)] for key, value in numbers.items()]


def _numbers_from_json(raw: Any) -> dict[OpKey, float]:
    return {_key(name, kind): _number(value) for name, kind, value in raw}


def _tradeoffs_to_json(tradeoffs: Tradeoffs) -> list[Any]:
    return [
        [
            key.name,
            key.kind,
            [[o.config.to_json(), o.error, o.time, o.size, list(o.phases)] for o in options],
        ]
        for key, options in tradeoffs.items()
    ]


def _tradeoffs_from_json(raw: Any) -> dict[OpKey, tuple[Tradeoff, ...]]:
    return {_key(name, kind): tuple(map(_tradeoff, options)) for name, kind, options in raw}


def _tradeoff(raw: Any) -> Tradeoff:
    config, error, time, size, phases = raw
    return Tradeoff(
        OpConfig.from_json(config),
        _number(error),
        _number(time),
        int(_number(size)),
        tuple(map(_number, phases)),
    )


def _key(name: Any, kind: Any) -> OpKey:
    if type(name) is not str or type(kind) is not str:
        raise ValueError("an op's name or kind is not text")
    return OpKey(name, kind)


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)
