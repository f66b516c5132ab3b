"""What each possible cut costs and gains: outputs compared with FP32's, and real time saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median
from typing import Any

from lpot.core.batch import Inputs
from lpot.core.compress.choice import COMPARED, MERGED, Cut, Saving, choose, ranked, saving
from lpot.core.compress.groups import Group, Kept, Left, strongest
from lpot.core.compress.prunable import Parts
from lpot.core.measure import quiet_clock
from lpot.core.model import Model
from lpot.core.progress import Listener, counted
from lpot.core.ptq.distance import distance
from lpot.core.recipe import Recipe

SHARES = (0.25, 0.5, 0.75)
MULTIPLE = 8  # kernels like channels in eights
LOOK = 4  # layers behind each cut that are fitted before sensitivity is measured
ROUNDS, CALLS = 5, 4
WHOLE = 15  # rounds for what was chosen: a wrong figure there costs a training
FEWEST, LONG = 3, 1.0  # rounds in any case; seconds, after which there are no more


@dataclass(frozen=True, eq=False)
class Workbench:
    """A backend that prunes, the model, the recipe it will run in, a few batches to compare outputs
    on, more of them to fit what was chosen to, and one to time."""

    backend: Any  # a Backend that is Prunable, too
    model: Model
    recipe: Recipe
    batches: Sequence[Inputs]
    more: Sequence[Inputs]
    timed: Inputs
    listener: Listener


@dataclass(frozen=True, eq=False)
class Pruned:
    """A cut model, fitted but not trained, and the share of the latency that it saves."""

    model: Model
    cuts: tuple[Cut, ...]
    gain: float
    words: str


class Sensitivity:
    """What can be cut from a model, measured: each cut alone, and then those chosen together."""

    def __init__(self, bench: Workbench, parts: Parts) -> None:
        self.bench, self.parts = bench, parts
        self.groups = {group.name: group for group in parts.groups}
        # Fitted to one half, judged by the other.
        half = len(bench.batches) // 2
        self.fit, self.judge = bench.batches[: half or 1], bench.batches[half:]
        self.truth = [bench.backend.run(bench.model, inputs) for inputs in self.judge]
        self.base = _low(bench, bench.model)
        self._gains: dict[tuple[object, ...], float] = {}
        self._times: dict[tuple[Cut, ...], list[float]] = {}
        self._errors: dict[frozenset[Cut], float] = {}
        self._tried = 0
        # Sets are timed in turns, and to build a model may take longer than to time it.
        self._built = lru_cache(COMPARED + 1)(self._build)
        self.cuts = self._each_alone()

    def cheapest(self, ratio: float) -> list[Saving]:
        """Cuts that save this share of the latency, those with the least error first."""
        self.bench.listener.phase(f"choosing cuts that save {100 * ratio:g} %: models tried")
        self._tried = 0
        enough = saving(
            ratio, lambda wanted: choose(self.cuts, wanted, self.together), self._gain_of
        )
        return ranked(enough, ratio, self.cuts, self.together, self._gain_of)

    def plan(self, chosen: tuple[Cut, ...], gain: float) -> Pruned:
        """The model that these cuts leave."""
        left = self._left(chosen)
        words = [f"{name} without layers" for name in left.removed]
        words += [f"{name} as one layer" for name in left.merged]
        words += [f"{name} {self.groups[name].units} to {len(k)}" for name, k in left.kept.items()]
        model = _refitted(self.bench, self.parts, left)
        return Pruned(model, chosen, gain, ", ".join(words) or "nothing")

    def _gain_of(self, cuts: tuple[Cut, ...]) -> float:
        """The median of all measurements so far."""
        self._told()
        found = self._times.setdefault(cuts, [])
        found.append(_gain(self.bench, self.base, self._built(cuts), WHOLE))
        return median(found)

    def _build(self, cuts: tuple[Cut, ...]) -> Model:
        small = self.bench.backend.pruned(self.bench.model, self.parts, self._left(cuts))
        return _low(self.bench, small)

    def _each_alone(self) -> list[Cut]:
        work: list[tuple[Group | str, float]] = [
            *((group, share) for group in self.parts.groups for share in self._shares(group)),
            *((name, MERGED) for name in self.parts.mergers),
            *((name, 1.0) for name in self.parts.blocks),
        ]
        self.bench.listener.phase("measuring what each cut costs and gains", len(work))
        return [self._cut(target, share) for target, share in counted(work, self.bench.listener)]

    def _shares(self, group: Group) -> list[float]:
        """Those that leave different numbers of units, and not all of them."""
        left = {len(_kept(self.parts, group, share)[group.name]): share for share in SHARES[::-1]}
        return sorted(share for units, share in left.items() if units < group.units)

    def _cut(self, target: Group | str, share: float) -> Cut:
        if isinstance(target, str):
            small = self._model(_blocks((target, share)))
            gain = _gain(self.bench, self.base, _low(self.bench, small))
            return Cut(target, share, self.error(small), gain, block=True)
        kept = _kept(self.parts, target, share)
        small = self._model(Left(kept))
        like = (*target.kind, len(kept[target.name]))  # groups of one kind gain alike
        if like not in self._gains:
            self._gains[like] = _gain(self.bench, self.base, _low(self.bench, small))
        return Cut(target.name, share, self.error(small), self._gains[like])

    def together(self, cuts: tuple[Cut, ...]) -> float:
        """Their error, which is more than the sum where one makes up for another."""
        known = frozenset(cuts)  # every attempt at a share goes the same way at first
        if known not in self._errors:
            self._told()
            self._errors[known] = self.error(self.fitted(cuts))
        return self._errors[known]

    def fitted(self, cuts: tuple[Cut, ...]) -> Model:
        """What they leave, fitted to a few samples."""
        return self._model(self._left(cuts))

    def _told(self) -> None:
        """How many there will be, nobody knows."""
        self.bench.listener.step(self._tried)
        self._tried += 1

    def _left(self, cuts: tuple[Cut, ...]) -> Left:
        kept: dict[str, tuple[int, ...]] = {}
        for cut in cuts:
            if not cut.block:
                kept.update(_kept(self.parts, self.groups[cut.target], cut.share))
        blocks = _blocks(*((cut.target, cut.share) for cut in cuts if cut.block))
        return replace(blocks, kept=kept)

    def _model(self, left: Left) -> Model:
        small: Model = self.bench.backend.refitted(
            self.bench.model, self.parts, left, self.fit, most=LOOK
        )
        return small

    def low_error(self, small: Model) -> float:
        """In the precision that it will run in."""
        return self.error(_low(self.bench, small))

    def error(self, small: Model) -> float:
        return _mean_distance(self.bench, self.judge, self.truth, small)


def _blocks(*cut: tuple[str, float]) -> Left:
    return Left(
        removed=tuple(name for name, share in cut if share == 1.0),
        merged=tuple(name for name, share in cut if share == MERGED),
    )


def _refitted(bench: Workbench, parts: Parts, left: Left) -> Model:
    """The cut model, its layers fitted to the full one's where that brings it nearer."""
    small: Model = bench.backend.pruned(bench.model, parts, left)
    if left == Left():
        return small
    bench.listener.phase("fitting the remaining layers to the full model")
    fitted: Model = bench.backend.refitted(bench.model, parts, left, bench.more)
    truth = [bench.backend.run(bench.model, inputs) for inputs in bench.batches]
    return min(
        (fitted, small), key=lambda model: _mean_distance(bench, bench.batches, truth, model)
    )


def _kept(parts: Parts, group: Group, share: float) -> Kept:
    multiple = MULTIPLE if group.block == 1 else 1
    found = strongest(parts.importance[group.name], share, multiple, group.spans)
    return {group.name: found}


def _mean_distance(
    bench: Workbench, batches: Sequence[Inputs], truth: Sequence[Any], small: Model
) -> float:
    found = [bench.backend.run(small, inputs) for inputs in batches]
    return sum(map(distance, truth, found)) / len(truth)


def _low(bench: Workbench, model: Model) -> Model:
    """The model in the precision that it will run in, to be timed: its ranges may be rough."""
    observed = bench.backend.observe(model, list(bench.batches[:1]), (bench.recipe.samples,))
    made: Model = bench.backend.build(model, bench.recipe, observed[bench.recipe.samples])
    return made


def _gain(bench: Workbench, base: Model, small: Model, rounds: int = ROUNDS) -> float:
    """The share of the latency that is saved. The least of several turns: others may be busy."""
    least = [float("inf"), float("inf")]
    clock = quiet_clock()
    begun = clock()
    for turn in range(rounds):
        if turn >= FEWEST and clock() - begun > LONG:
            break
        for index, model in enumerate((base, small)):
            bench.backend.run(model, bench.timed)
            for _ in range(CALLS):
                start = clock()
                bench.backend.run(model, bench.timed)
                least[index] = min(least[index], clock() - start)
    return 1 - least[1] / least[0]
