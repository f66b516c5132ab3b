"""Which channels of a Keras model belong together, and which blocks of layers could go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from lpot.backends.tensorflow.pruning.flow import Flow, Lane
from lpot.backends.tensorflow.pruning.rules import UNKNOWN, Made, rule_of
from lpot.backends.tensorflow.pruning.walk import Step, called_once, is_nested, walk
from lpot.backends.tensorflow.pruning.wiring import is_sum
from lpot.backends.tensorflow.runtime import tf
from lpot.core.compress.groups import Group, group_of


@dataclass(frozen=True, eq=False)
class Block:
    """A branch that is added to its own input: without it the sum hands on that input.

    `shortcut` is its place among the operands, `inside` the paths of the branch's steps.
    """

    name: str
    shortcut: int
    inside: Set[str]


def find_groups(model: Any, blocks: Mapping[str, Block] | None = None) -> list[Group]:
    """Every group of channels that could be removed, as far as rules tell.

    One that is made inside of a block is named after it, as it goes with it.
    """
    flow = Flow()
    flow.fix(walk(model, [None] * len(model.inputs), _Recorder(flow, called_once(model))))
    streams = flow.ties.streams()
    found = [group_of(stream, flow.places, flow.widths, {}) for stream in streams]
    named = [_named(group, blocks or {}) for group in found if group is not None]
    return sorted(named, key=lambda group: group.name)


class _Recorder:
    """Applies the rule of each step; what none knows fixes the channels that it touches."""

    def __init__(self, flow: Flow, alone: Set[int]) -> None:
        self.flow = flow
        self.alone = alone  # operations that their model calls once: weights with one use

    def __call__(self, step: Step) -> list[Lane | None]:
        once = id(step.op) in self.alone
        if once and is_nested(step.op):
            inside = _Recorder(self.flow, called_once(step.op))
            return walk(step.op, step.inputs, inside, f"{step.path}.")
        rule = rule_of(step.op)
        weights = isinstance(step.op, tf.keras.layers.Layer) and bool(step.op.weights)
        made: Made = UNKNOWN
        if rule is not None and (once or not weights) and len(step.made) == 1:
            made = rule(self.flow, step)
        if isinstance(made, str):
            self.flow.fix(step.inputs)
            return [None] * len(step.made)
        return [made]


def _named(group: Group, blocks: Mapping[str, Block]) -> Group:
    makers = {slot.place.tensor.rpartition(".")[0] for slot in group.slots if not slot.reads}
    around = [block for block in blocks.values() if makers <= block.inside]
    return replace(group, name=f"{around[0].name}.{group.name}") if around else group


@dataclass(frozen=True, eq=False)
class _Past:
    """A value: the values and steps that it was made of."""

    values: frozenset[int]
    steps: frozenset[str]
    weighted: frozenset[str]  # of them, those that have a kernel

    @classmethod
    def of(cls, parts: Sequence[_Past], number: int, path: str, weighted: bool) -> _Past:
        return cls(
            frozenset({number}).union(*(part.values for part in parts)),
            frozenset({path}).union(*(part.steps for part in parts)),
            frozenset({path} if weighted else ()).union(*(part.weighted for part in parts)),
        )


def find_blocks(model: Any) -> dict[str, Block]:
    """Sums of a value and what was computed from it, with a layer that has a kernel at least."""
    finder = _Finder(called_once(model))
    walk(model, finder.start(len(model.inputs)), finder)
    found = {block.name: block for block in finder.blocks}
    # What holds several blocks is no block.
    return {
        name: block
        for name, block in found.items()
        if not any(one in block.inside for one in found)
    }


class _Finder:
    def __init__(self, alone: Set[int]) -> None:
        self.alone = alone
        self.blocks: list[Block] = []
        self._count = 0

    def start(self, inputs: int) -> list[_Past]:
        return [self._past([], "", False) for _ in range(inputs)]

    def _past(self, parts: Sequence[_Past], path: str, weighted: bool) -> _Past:
        self._count += 1
        return _Past.of(parts, self._count, path, weighted)

    def __call__(self, step: Step) -> list[_Past]:
        if is_nested(step.op) and id(step.op) in self.alone:
            outer, self.alone = self.alone, called_once(step.op)
            made = walk(step.op, step.inputs, self, f"{step.path}.")
            self.alone = outer
            return made
        if is_sum(step):
            for shortcut, other in ((0, 1), (1, 0)):
                self._note(step, shortcut, step.inputs[shortcut], step.inputs[other])
        weighted = any("kernel" in one.name for one in getattr(step.op, "weights", ()))
        return [self._past(step.inputs, step.path, weighted) for _ in step.made]

    def _note(self, step: Step, place: int, shortcut: _Past, branch: _Past) -> None:
        if shortcut.values < branch.values and branch.weighted - shortcut.weighted:
            self.blocks.append(Block(step.path, place, branch.steps - shortcut.steps))
