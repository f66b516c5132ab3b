"""Who makes and who reads which value of a Keras model, through the models inside of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lpot.backends.tensorflow.pruning.walk import Step, is_nested, kind_of, walk

_ACTIVATIONS = ("ReLU", "Activation", "ops.Relu")


class Wiring:
    """The steps of a model in their order; those that run twice have a path only once."""

    def __init__(self, model: Any) -> None:
        self.steps: dict[str, Step] = {}
        self.twice: set[str] = set()
        self._readers: dict[int, list[Step]] = {}
        self._made: dict[str, list[object]] = {}
        self._ends = walk(model, [object() for _ in model.inputs], self._visit)

    def _visit(self, step: Step) -> list[Any]:
        if is_nested(step.op):
            return walk(step.op, step.inputs, self._visit, f"{step.path}.")
        if step.path in self.steps:
            self.twice.add(step.path)
        self.steps[step.path] = step
        for value in step.inputs:
            self._readers.setdefault(id(value), []).append(step)
        self._made[step.path] = [object() for _ in step.made]
        return self._made[step.path]

    def reader(self, path: str) -> Step | None:
        """The one step that reads what this one gives, and nothing else does."""
        (first, *others) = self._made[path]
        found = self._readers.get(id(first), [])
        is_end = any(first is end for end in self._ends)
        return found[0] if len(found) == 1 and not others and not is_end else None

    def operand(self, path: str, reader: Step) -> int:
        """Which of the reader's inputs it is."""
        return next(at for at, one in enumerate(reader.inputs) if one is self._made[path][0])


def is_sum(step: Step) -> bool:
    """Of two values of one shape."""
    operator = kind_of(step.op) in ("Add", "ops.Add")
    return operator and len(step.inputs) == 2 and step.given[0] == step.given[1]


def residuals(wiring: Wiring) -> Mapping[str, str]:
    """Sums in their order, each with the activation that alone reads it, or with itself."""
    found: dict[str, str] = {}
    for path, step in wiring.steps.items():
        if is_sum(step):
            after = wiring.reader(path)
            ends = after is not None and kind_of(after.op) in _ACTIVATIONS
            found[path] = after.path if ends and after is not None else path
    return found


def stages(wiring: Wiring) -> Sequence[str]:
    """Where the resolution of a net without sums changes."""
    return [path for path, step in wiring.steps.items() if "Pooling" in kind_of(step.op)]
