"""Pruners: each keeps some weights of a model at zero while a training loop calls its hooks."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lpot.core.compress import masks
from lpot.core.compress.masks import Array, Mask
from lpot.core.compress.resume import Kept
from lpot.core.compress.schedule import Schedule
from lpot.core.compress.sparsity import Sparsity, count_zeros
from lpot.core.compress.weight_store import WeightStore, chosen
from lpot.core.errors import ConfigError, did_you_mean

PARAMETERS = ("pattern", "stride", "transpose", "target", "alpha")
# The original's, for which there is no need here.
WITHOUT_EFFECT = ("importance_inputs", "importance_metric", "index", "normalize")
FAR = 0.05  # below the target: such a layer is told
WHOLE = 1 << 30  # rows or columns: all of them
NEED_GRADIENTS = ("gradient_sensitivity", "group_lasso")


@dataclass(frozen=True)
class PrunerSpec:
    """One pruner, as the yaml describes it."""

    kind: str
    schedule: Schedule
    names: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""  # file:line, for messages

    @property
    def tile(self) -> tuple[int, int]:
        """What becomes zero together: the pattern, or whole heads of `stride` rows (columns where
        `transpose` is set)."""
        stride = self.parameters.get("stride")
        if stride is None:
            return masks.tile_of(str(self.parameters.get("pattern", "tile_pattern_1x1")))
        if type(stride) is not int or stride < 1:
            raise ConfigError(f"given {stride!r}, expected a number of rows, 1 or more", "stride")
        heads = (stride, WHOLE)
        return heads[::-1] if self.parameters.get("transpose") else heads

    @property
    def left(self) -> int | None:
        """So many of the heads stay, where it is said that way."""
        given = self.parameters.get("target")
        if given is not None and (type(given) is not int or given < 1):
            raise ConfigError(
                f"given {given!r}, expected the number of heads (of `stride` rows each) that stay, "
                "1 or more",
                "target",
            )
        return given

    def target_of(self, weight: Array) -> float:
        """The share of this weight that becomes zero."""
        if self.left is None:
            return self.schedule.target
        rows, columns = self.tile_of(weight)
        high, wide = masks.as_matrix(weight).shape
        tiles = -(-high // rows) * -(-wide // columns)
        return max(0.0, 1 - self.left / int(tiles))

    def share_at(self, epoch: int, weight: Array) -> float:
        target = self.target_of(weight)
        plan = replace(self.schedule, target=target, initial=min(self.schedule.initial, target))
        return plan.at(epoch)

    def tile_of(self, weight: Array) -> tuple[int, int]:
        """The tile as far as the weight has room for it."""
        (rows, columns), (high, wide) = self.tile, masks.as_matrix(weight).shape
        return min(rows, max(1, high)), min(columns, max(1, wide))

    @property
    def strength(self) -> float:
        """Of the group lasso."""
        given = self.parameters.get("alpha", 1e-4)
        if type(given) not in (int, float) or not 0 <= given < np.inf:
            raise ConfigError(f"given {given!r}, expected a number, 0 or more", "alpha")
        return float(given)

    @property
    def idle(self) -> list[str]:
        """Parameters that nothing reads."""
        return sorted(set(self.parameters) & set(WITHOUT_EFFECT))

    def check(self) -> None:
        """Raises ConfigError, which names the parameter, for what can't be used."""
        known = (*PARAMETERS, *WITHOUT_EFFECT)
        for name in self.parameters:
            if name not in known:
                raise ConfigError(
                    f"unknown parameter {name!r}{did_you_mean(name, known) or '.'} "
                    f"Allowed: {', '.join(known)}",
                    name,
                )
        assert self.tile and self.strength >= 0 and self.left != 0


class Pruner:
    """Its masks are made anew in each epoch, and hold after each step of the optimizer."""

    def __init__(self, spec: PrunerSpec, store: WeightStore) -> None:
        self.spec = spec
        self.store = store
        self.names, self.biases = chosen(store, spec.names, spec.where)
        if spec.kind in NEED_GRADIENTS:
            store.watch(self.names)
        self.keep: dict[str, Mask] = {}
        self.scores: dict[str, Array] = {}
        self._is_told = False  # of the gradients of this batch
        self._lacks = spec.kind in NEED_GRADIENTS  # no gradient was seen so far
        if spec.kind == "pattern_lock":  # the zeros of the model as it comes
            self._mask(spec.target_of)

    def on_epoch_begin(self, epoch: int) -> None:
        self._mask(lambda weight: self.spec.share_at(epoch, weight))

    def on_post_grad(self) -> None:
        """Between backward and the optimizer's step: the gradients are known."""
        self._is_told = True
        for name in self.names if self.spec.kind in NEED_GRADIENTS else ():
            gradient = self.store.gradient(name)
            if gradient is None:
                continue
            self._lacks = False
            weight = self.store.read(name)
            if self.spec.kind == "gradient_sensitivity":
                found = np.abs(weight * gradient)
                self.scores[name] = self.scores.get(name, np.zeros_like(found)) + found
            else:
                tile = self.spec.tile_of(weight)
                self.store.pull(name, masks.lasso_step(weight, self.spec.strength, tile))

    def on_batch_end(self) -> None:
        # A loop without on_post_grad, as the original's were: the last gradients are known still.
        if not self._is_told and self.spec.kind == "gradient_sensitivity":
            self.on_post_grad()
        self._is_told = False
        self.hold()

    def on_epoch_end(self) -> None:
        self.hold()
        if self._lacks:
            raise ConfigError(
                f"{self.spec.kind} saw no gradients in this epoch: call on_post_grad() between "
                "backward and the optimizer's step (with Keras, let `pruning.train` describe the "
                "loop), or use basic_magnitude",
                "prune_type",
                self.spec.where,
            )

    def hold(self) -> None:
        """What is zero stays zero."""
        for name, keep in self.keep.items():
            self.store.mask(name, keep)

    def go_on(self, scores: Mapping[str, Array]) -> None:
        """Behind epochs in which these were gathered."""
        self.scores, self._lacks = dict(scores), False

    def thin(self, part: float) -> None:
        """So much of the way from the zeros that are there to the target."""

        def share(weight: Array) -> float:
            now = 1 - np.count_nonzero(weight) / weight.size
            return float(now + part * max(0.0, self.spec.target_of(weight) - now))

        self._mask(share)

    def finish(self) -> None:
        """The target itself, whatever epoch the loop ended in."""
        self._mask(self.spec.target_of)

    def shortfalls(self) -> list[str]:
        """Layers that have too few tiles to be as sparse as was asked for."""
        found = []
        for name in self.names if self.spec.kind != "pattern_lock" else ():
            weight = self.store.read(name)
            target = self.spec.target_of(weight)
            share = 1 - np.count_nonzero(weight) / weight.size
            if share < target - FAR:
                rows, columns = self.spec.tile_of(weight)
                found.append(
                    f"{name} has {100 * share:.1f} % zeros instead of {100 * target:g} %: only "
                    f"whole tiles of {rows}x{columns} can go"
                )
        return found

    def _mask(self, share_of: Callable[[Array], float]) -> None:
        for name in self.names:
            weight = self.store.read(name)
            if self.spec.kind == "pattern_lock":
                keep = self.keep.get(name, masks.locked(weight))
            else:
                scores = self.scores.get(name, np.abs(weight))
                # What is zero stays zero: the lowest score there is.
                scores = np.where(weight == 0, -1.0, scores)
                keep = masks.lowest(scores, share_of(weight), self.spec.tile_of(weight))
            self.keep[name] = keep
            if name in self.biases:
                # An output that nothing is left of gives nothing at all.
                self.keep[self.biases[name]] = np.any(masks.as_matrix(keep), axis=1)
        self.hold()


class Pruners:
    """All pruners of a job as one set of hooks."""

    def __init__(self, specs: Iterable[PrunerSpec], store: WeightStore) -> None:
        self.store = store
        self.pruners = [Pruner(spec, store) for spec in specs]
        self.epoch: int | None = None  # the last that began
        self.called = False  # has the loop used any hook?
        _check_apart(self.pruners)

    def on_epoch_begin(self, epoch: int) -> None:
        if isinstance(epoch, bool) or not isinstance(epoch, numbers.Real):
            raise ConfigError(
                f"given {epoch!r}, expected the number of the epoch: on_epoch_begin(epoch)", "epoch"
            )
        self.epoch, self.called = epoch, True
        for pruner in self.pruners:
            pruner.on_epoch_begin(epoch)

    def on_batch_begin(self, batch: int = 0) -> None:
        """Nothing to do: masks hold from the step before."""

    def on_post_grad(self) -> None:
        for pruner in self.pruners:
            pruner.on_post_grad()

    def on_batch_end(self) -> None:
        self.called = True
        for pruner in self.pruners:
            pruner.on_batch_end()

    def on_epoch_end(self) -> None:
        for pruner in self.pruners:
            pruner.on_epoch_end()

    @property
    def too_early(self) -> str:
        """What is wrong where the training ended before the zeros had reached their target."""
        plans = [each.spec.schedule for each in self.pruners if each.spec.kind != "pattern_lock"]
        if self.epoch is None:
            told = "on_epoch_begin(epoch) was never called: all zeros were set after the training"
            return told if plans else ""
        epoch = self.epoch
        late = [plan for plan in plans if plan.at(epoch) < plan.target]
        if not late:
            return ""
        last = max(late, key=lambda plan: plan.end)
        return (
            f"the training ended with epoch {self.epoch}, before the pruners' end_epoch "
            f"({last.end}): the zeros from {100 * last.at(self.epoch):g} to "
            f"{100 * last.target:g} % were set after it, without any training"
        )

    @property
    def masks(self) -> dict[str, masks.Mask]:
        """What is kept of each weight, and of biases that go with them."""
        return {name: keep for each in self.pruners for name, keep in each.keep.items()}

    def zeros(self) -> int:
        """How many weights of those to be pruned are zero."""
        names = dict.fromkeys(name for pruner in self.pruners for name in pruner.names)
        weights = map(self.store.read, names)
        return sum(int(weight.size - np.count_nonzero(weight)) for weight in weights)

    def kept(self) -> Kept:
        """Masks are made of the weights again, in each epoch."""
        scores = {
            f"{number}/{name}": score
            for number, pruner in enumerate(self.pruners)
            for name, score in pruner.scores.items()
        }
        return Kept(scores, {"epoch": self.epoch})

    def take(self, kept: Kept) -> None:
        self.epoch, self.called = kept.facts["epoch"], True
        for number, pruner in enumerate(self.pruners):
            start = f"{number}/"
            own = {name: one for name, one in kept.arrays.items() if name.startswith(start)}
            pruner.go_on({name.removeprefix(start): one for name, one in own.items()})

    def thin(self, part: float) -> None:
        for pruner in self.pruners:
            pruner.thin(part)

    def hold(self) -> None:
        for pruner in self.pruners:
            pruner.hold()

    def finish(self) -> None:
        for pruner in self.pruners:
            pruner.finish()

    def shortfalls(self) -> list[str]:
        return [told for pruner in self.pruners for told in pruner.shortfalls()]

    def sparsity(self) -> Sparsity:
        names = dict.fromkeys(name for pruner in self.pruners for name in pruner.names)
        known = dict.fromkeys([*self.store.names(), *names])
        return count_zeros({name: self.store.read(name) for name in known}, frozenset(names))


def _check_apart(pruners: Sequence[Pruner]) -> None:
    seen: set[str] = set()
    for pruner in pruners:
        twice = sorted(seen & set(pruner.names))
        if twice:
            raise ConfigError(
                f"{twice[0]!r} is named by two pruners: assign each weight to only one",
                "names",
                pruner.spec.where,
            )
        seen |= set(pruner.names)
