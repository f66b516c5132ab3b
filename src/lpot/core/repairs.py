"""What a recipe does to the whole graph, besides the precision of single ops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_SMOOTH, _PRUNED, _FLOATS = "smooth=", "pruned ", "floats="
HALVES = ("bf16", "fp16")
# How switches are written in recipes on disk, in this order.
_WORDS = {
    "bias_correction": "bias",
    "weight_correction": "weight",
    "folding": "fold",
    "outlier_split": "split_outliers",
    "tensor_smoothing": "smooth=each",
}


@dataclass(frozen=True)
class Repairs:
    """Graph-wide changes; of a backend, those that it can be asked for.

    >>> Repairs(bias_correction=True, smoothing=0.5).to_json()
    ['bias', 'smooth=0.5']
    >>> Repairs.from_json(["bias", "smooth=0.5"])
    Repairs(bias_correction, smoothing=0.5)
    """

    bias_correction: bool = False  # the mean error of a rounded op is taken off its bias
    weight_correction: bool = False  # each channel of a rounded weight keeps its spread
    folding: bool = False  # the folded graph, although nothing in it is INT8
    outlier_split: bool = False  # outlier channels between two products get products of their own
    tensor_smoothing: bool = False  # SmoothQuant with the best factors for each tensor
    smoothing: float | None = None  # SmoothQuant with this alpha for all of them
    pruning: float | None = None  # share of the latency that was pruned before
    floats: str = ""  # what stays float is computed in these: bf16 or fp16, where a runtime can

    def __post_init__(self) -> None:
        if self.pruning is not None:  # as exact as it is on disk, and no more
            object.__setattr__(self, "pruning", float(f"{100 * self.pruning:g}") / 100)

    def __bool__(self) -> bool:
        return self != NONE

    def __repr__(self) -> str:
        given = ((name, value) for name, value in vars(self).items() if value)
        told = (name if value is True else f"{name}={value!r}" for name, value in given)
        return f"Repairs({', '.join(told)})"

    def to_json(self) -> list[str]:
        return list(self._words())

    def _words(self) -> Iterator[str]:
        yield from (word for name, word in _WORDS.items() if vars(self)[name])
        if self.smoothing is not None:
            yield f"{_SMOOTH}{self.smoothing}"
        if self.pruning is not None:
            yield pruned(self.pruning)
        if self.floats:
            yield f"{_FLOATS}{self.floats}"

    @classmethod
    def from_json(cls, words: Iterable[object]) -> Repairs:
        """Raises ValueError for what is none."""
        names = {word: name for name, word in _WORDS.items()}
        found: dict[str, Any] = {}
        for word in words:
            if not isinstance(word, str):
                raise ValueError(f"repairs must be strings, not {word!r}")
            if word in names:
                found[names[word]] = True
            elif word.startswith(_SMOOTH):
                found["smoothing"] = float(word.removeprefix(_SMOOTH))
            elif word.startswith(_PRUNED) and word.endswith("%"):
                found["pruning"] = float(word.removeprefix(_PRUNED)[:-1]) / 100
            elif word.removeprefix(_FLOATS) in HALVES and word.startswith(_FLOATS):
                found["floats"] = word.removeprefix(_FLOATS)
            else:
                raise ValueError(f"{word!r} is a repair unknown to this version")
        return cls(**found)


NONE = Repairs()


def pruned(ratio: float) -> str:
    """How recipes, notes and folders name a model with that share of its latency pruned.

    >>> pruned(0.35)
    'pruned 35%'
    """
    return f"{_PRUNED}{100 * ratio:g}%"
