"""What each possible cut costs and gains: outputs compared with FP32's, and real time saved."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lpot.core.batch import Inputs
from lpot.core.compress.groups import Cut, Group, Kept, choose, strongest
from lpot.core.compress.prunable import Parts
from lpot.core.model import Model
from lpot.core.progress import Listener, counted
from lpot.core.ptq.distance import distance
from lpot.core.recipe import Recipe

SHARES = (0.25, 0.5, 0.75)
MULTIPLE = 8  # kernels like channels in eights
LOOK = 4  # layers after a cut that are fitted before its harm is measured
ROUNDS, CALLS = 5, 4


@dataclass(frozen=True, eq=False)
class Workbench:
    """A backend that prunes, the model, the recipe it will run in, and a few batches."""

    backend: Any  # a Backend that is Prunable, too
    model: Model
    recipe: Recipe
    batches: Sequence[Inputs]
    listener: Listener


def possible_cuts(bench: Workbench, parts: Parts) -> list[Cut]:
    """Every cut alone: its harm, and the share of the latency that it saves."""
    tried = [(group, share) for group in parts.groups for share in SHARES]
    work: list[tuple[Group | str, float]] = [*tried, *((name, 1.0) for name in parts.blocks)]
    look = _Look(bench, parts)
    bench.listener.phase("measuring what each cut costs and gains", len(work))
    found = [look.cut(target, share) for target, share in counted(work, bench.listener)]
    return [cut for cut in found if cut is not None]


class _Look:
    """Tries cuts one by one."""

    def __init__(self, bench: Workbench, parts: Parts) -> None:
        self.bench, self.parts = bench, parts
        # Fitted to the first batch, judged by the others.
        self.fit, self.judge = bench.batches[:1], bench.batches[1:] or bench.batches
        self.truth = [bench.backend.run(bench.model, inputs) for inputs in self.judge]
        self.base = _low(bench, bench.model)
        self.gains: dict[tuple[object, ...], float] = {}

    def cut(self, target: Group | str, share: float) -> Cut | None:
        if isinstance(target, str):
            small = self._model({}, (target,))
            gain = _gain(self.bench, self.base, _low(self.bench, small))
            return Cut(target, 1.0, self._harm(small), gain, block=True)
        kept = _kept(self.parts, target, share)
        left = len(kept[target.name])
        if left == target.units:
            return None
        small = self._model(kept, ())
        like = (*target.kind, left)  # groups of one kind gain alike
        if like not in self.gains:
            self.gains[like] = _gain(self.bench, self.base, _low(self.bench, small))
        return Cut(target.name, share, self._harm(small), self.gains[like])

    def _model(self, kept: Kept, blocks: tuple[str, ...]) -> Model:
        backend = self.bench.backend
        small: Model = backend.refitted(
            self.bench.model, self.parts, kept, blocks, self.fit, most=LOOK
        )
        return small

    def _harm(self, small: Model) -> float:
        return _harm(self.bench, self.judge, self.truth, small)


def cut_model(bench: Workbench, parts: Parts, cuts: Sequence[Cut], ratio: float) -> Plan:
    """The cheapest cuts that save this share of the latency, and the model they leave."""
    chosen = choose(cuts, ratio)
    groups = {group.name: group for group in parts.groups}
    kept: dict[str, tuple[int, ...]] = {}
    for cut in chosen:
        if not cut.block:
            kept.update(_kept(parts, groups[cut.target], cut.share))
    blocks = tuple(cut.target for cut in chosen if cut.block)
    small = _refitted(bench, parts, kept, blocks)
    words = [f"{name} without layers" for name in blocks]
    words += [f"{name} {groups[name].units} to {len(left)}" for name, left in kept.items()]
    return Plan(small, chosen, sum(cut.gain for cut in chosen), ", ".join(words) or "nothing")


@dataclass(frozen=True, eq=False)
class Plan:
    model: Model
    cuts: tuple[Cut, ...]
    gain: float
    words: str


def _refitted(bench: Workbench, parts: Parts, kept: Kept, blocks: tuple[str, ...]) -> Model:
    """The cut model, its layers fitted to the full one's where that brings it nearer."""
    small: Model = bench.backend.pruned(bench.model, parts, kept, blocks)
    if not kept and not blocks:
        return small
    bench.listener.phase("fitting the layers that are left to the full model's")
    fitted: Model = bench.backend.refitted(bench.model, parts, kept, blocks, bench.batches)
    truth = [bench.backend.run(bench.model, inputs) for inputs in bench.batches]
    return min((fitted, small), key=lambda model: _harm(bench, bench.batches, truth, model))


def _kept(parts: Parts, group: Group, share: float) -> Kept:
    multiple = MULTIPLE if group.block == 1 else 1
    return {group.name: strongest(parts.importance[group.name], share, multiple)}


def _harm(bench: Workbench, batches: Sequence[Inputs], truth: Sequence[Any], small: Model) -> float:
    found = [bench.backend.run(small, inputs) for inputs in batches]
    return sum(map(distance, truth, found)) / len(truth)


def _low(bench: Workbench, model: Model) -> Model:
    """The model in the precision that it will run in."""
    observed = bench.backend.observe(model, list(bench.batches), (bench.recipe.samples,))
    made: Model = bench.backend.build(model, bench.recipe, observed[bench.recipe.samples])
    return made


def _gain(bench: Workbench, base: Model, small: Model) -> float:
    """The share of the latency that is saved. The least of several turns: others may be busy."""
    least = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for index, model in enumerate((base, small)):
            bench.backend.run(model, bench.batches[0])
            for _ in range(CALLS):
                start = time.perf_counter()
                bench.backend.run(model, bench.batches[0])
                least[index] = min(least[index], time.perf_counter() - start)
    return 1 - least[1] / least[0]
