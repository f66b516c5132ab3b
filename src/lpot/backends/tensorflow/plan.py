"""From a recipe and statistics to a plan: what is INT8, what is fused, how tensors are held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from lpot.backends.tensorflow.formats import Format, choose_formats, makes, takes
from lpot.backends.tensorflow.prepare import Prepared
from lpot.backends.tensorflow.structure.layers import Follower, Layer, Step, low_readers
from lpot.backends.tensorflow.structure.liveness import can_sum
from lpot.core.numerics.rounding import TensorStats
from lpot.core.recipe import OpConfig, OpKey, Recipe


@dataclass(frozen=True, eq=False)
class Plan:
    """Forms by tensor: `wanted` by its INT8 readers, `held` by the INT8 op that makes it."""

    steps: Mapping[str, Step]
    followers: Mapping[str, Follower]
    wanted: Mapping[str, Format]
    held: Mapping[str, Format]
    signed: Mapping[str, Format]  # for readers that can't take the form wanted by the others
    # By op, what rounding its weight adds to its outputs on the average: the bias takes it back.
    shifts: Mapping[str, np.ndarray] = field(default_factory=dict)

    def taken(self, layer: Layer) -> Format:
        """The form in which a layer reads its input."""
        form = self.wanted[layer.x]
        return form if takes(layer, form) else self.signed[layer.x]

    def precision(self, key: OpKey) -> str:
        return "int8" if key.name in self.steps or key.name in self.followers else "fp32"


@dataclass(frozen=True, eq=False)
class Shapes:
    """Sizes seen during calibration, by tensor; empty when nothing was noted."""

    seen: Mapping[str, tuple[int, ...]]

    def equal(self, prepared: Prepared, one: str, other: str) -> bool:
        """Are two tensors of one shape, so that adding them broadcasts nothing?"""
        if one in self.seen and other in self.seen:
            return self.seen[one] == self.seen[other]
        first, second = prepared.net.shape(one), prepared.net.shape(other)
        return first is not None and first == second and None not in first


def plan(
    prepared: Prepared, recipe: Recipe, stats: Mapping[str, TensorStats], shapes: Shapes
) -> Plan:
    configs = {key.name: config for key, config in recipe.ops.items() if not config.is_float}
    barred: set[str] = set()
    while True:
        steps = _steps(prepared, configs, shapes, barred)
        followers = _followers(prepared, configs, steps)
        wanted, held, signed = choose_formats(prepared, steps, followers, stats)
        failed = {
            name
            for name, step in steps.items()
            if step.sums and not _sum_works(step, wanted, held, followers)
        }
        if not failed:
            return Plan(steps, followers, wanted, held, signed)
        barred |= failed


def _steps(
    prepared: Prepared, configs: Mapping[str, OpConfig], shapes: Shapes, barred: set[str]
) -> dict[str, Step]:
    low = {name: layer for name, layer in prepared.layers.items() if name in configs}
    steps: dict[str, Step] = {}
    taken: set[str] = set()
    # From the end of the graph: of two branches the later one finds the other ready.
    for name, layer in reversed(low.items()):
        residual = layer.residual
        step = Step(layer, configs[name], layer.out, layer.activation)
        if residual is not None and name not in barred and residual.add not in taken:
            same = shapes.equal(prepared, layer.out, residual.addend)
            if same and (layer.is_matmul or can_sum(prepared, layer)):
                taken.add(residual.add)
                step = Step(
                    layer, configs[name], residual.out, residual.activation, residual.addend
                )
        steps[name] = step
    return {name: steps[name] for name in low}


def _sum_works(
    step: Step,
    wanted: Mapping[str, Format],
    held: Mapping[str, Format],
    followers: Mapping[str, Follower],
) -> bool:
    """The kernel adds in quint8 and in place: to what another INT8 op made, and to nothing else."""
    assert step.addend is not None
    form = wanted[step.addend]
    made = held.get(step.addend) == form or step.addend in followers
    return made and form.dtype == "quint8" and makes(step, held[step.out])


def _followers(
    prepared: Prepared, configs: Mapping[str, OpConfig], steps: Mapping[str, Step]
) -> dict[str, Follower]:
    """Followers that have INT8 neighbours on both sides; the others drop out one by one."""
    active = {
        name: item for name, item in prepared.followers.items() if item.is_mover or name in configs
    }
    company = _Company(prepared, steps)
    changed = True
    while changed:
        changed = False
        for name, item in list(active.items()):
            if not company.keeps(item, active):
                del active[name]
                changed = True
    return active


class _Company:
    def __init__(self, prepared: Prepared, steps: Mapping[str, Step]) -> None:
        self.net = prepared.net
        self.makers = {step.out: step for step in steps.values()}
        self.readers = low_readers(prepared.net, steps)

    def keeps(self, item: Follower, active: Mapping[str, Follower]) -> bool:
        if not all(self._is_made(name, active) for name in item.inputs):
            return False
        low, every = self._readers_of(item.out, active)
        return low == every if item.is_mover else low > 0

    def _is_made(self, name: str, active: Mapping[str, Follower]) -> bool:
        step = self.makers.get(name)
        if step is None:
            return name in active
        if not step.layer.is_matmul:
            return True
        # A MatMul gives floats as cheaply; it gives 8 bits only if nobody wants floats.
        low, every = self._readers_of(name, active)
        return step.addend is None and low == every

    def _readers_of(self, name: str, active: Mapping[str, Follower]) -> tuple[int, int]:
        """(INT8 readers, all readers); being an output counts as one that wants floats."""
        users = [user.name for user in self.net.users.get(name, ())]
        low = sum(user in active or user in self.readers.get(name, ()) for user in users)
        return low, len(users) + (name in self.net.keep)
