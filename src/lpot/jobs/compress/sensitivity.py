"""What each possible cut costs and gains: outputs compared with FP32's, and real time saved."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lpot.core.backend import Backend
from lpot.core.batch import Inputs
from lpot.core.compress.groups import Cut, Group, Kept, choose, strongest
from lpot.core.compress.prunable import Parts
from lpot.core.model import Model
from lpot.core.progress import Listener, counted
from lpot.core.ptq.distance import distance
from lpot.core.recipe import Recipe

SHARES = (0.25, 0.5, 0.75)
TIMED = 0.5  # the share at which a group's gain is measured; the others are taken in proportion
MULTIPLE = 4  # kernels like channels in fours
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
    backend: Backend[Any] = bench.backend
    truth = [backend.run(bench.model, inputs) for inputs in bench.batches]
    base = _low(bench, bench.model)
    gains: dict[tuple[object, ...], float] = {}
    cuts: list[Cut] = []
    work: list[Group | str] = [*parts.groups, *parts.blocks]
    bench.listener.phase("measuring what each cut costs and gains", len(work))
    for item in counted(work, bench.listener):
        if isinstance(item, Group):
            if item.kind not in gains:
                small = _cut(bench, parts, _kept(parts, item, TIMED))
                gains[item.kind] = _gain(bench, base, _low(bench, small))
            for share in SHARES:
                small = _cut(bench, parts, _kept(parts, item, share))
                gain = gains[item.kind] * share / TIMED
                cuts.append(Cut(item.name, share, _harm(bench, truth, small), gain))
        else:
            small = bench.backend.pruned(bench.model, parts, {}, (item,))
            gain = _gain(bench, base, _low(bench, small))
            cuts.append(Cut(item, 1.0, _harm(bench, truth, small), gain, block=True))
    return cuts


def cut_model(bench: Workbench, parts: Parts, cuts: Sequence[Cut], ratio: float) -> Plan:
    """The cheapest cuts that save this share of the latency, and the model they leave."""
    chosen = choose(cuts, ratio)
    groups = {group.name: group for group in parts.groups}
    kept: dict[str, tuple[int, ...]] = {}
    for cut in chosen:
        if not cut.block:
            kept.update(_kept(parts, groups[cut.target], cut.share))
    blocks = tuple(cut.target for cut in chosen if cut.block)
    small = bench.backend.pruned(bench.model, parts, kept, blocks)
    words = [f"{name} without layers" for name in blocks]
    words += [f"{name} {groups[name].units} to {len(left)}" for name, left in kept.items()]
    return Plan(small, chosen, sum(cut.gain for cut in chosen), ", ".join(words) or "nothing")


@dataclass(frozen=True, eq=False)
class Plan:
    model: Model
    cuts: tuple[Cut, ...]
    gain: float
    words: str


def _kept(parts: Parts, group: Group, share: float) -> Kept:
    multiple = MULTIPLE if group.block == 1 else 1
    return {group.name: strongest(parts.importance[group.name], share, multiple)}


def _cut(bench: Workbench, parts: Parts, kept: Kept) -> Model:
    small: Model = bench.backend.pruned(bench.model, parts, kept)
    return small


def _harm(bench: Workbench, truth: Sequence[Any], small: Model) -> float:
    found = [bench.backend.run(small, inputs) for inputs in bench.batches]
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
