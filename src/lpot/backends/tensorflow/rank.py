"""Sensitivity: how far the outputs move when one op alone is INT8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.passes.simulate_ops import NOBODY, simulate_ops
from lpot.backends.tensorflow.prepare import Prepared
from lpot.backends.tensorflow.quick import QuickSession
from lpot.backends.tensorflow.repair import repair
from lpot.backends.tensorflow.run import feed
from lpot.backends.tensorflow.structure.nodes import full_name
from lpot.core.backend import Observations
from lpot.core.ptq.distance import distance
from lpot.core.recipe import OpKey, Recipe


def rank(model: TensorflowModel, recipe: Recipe, observations: Observations) -> dict[OpKey, float]:
    """Squared error over squared value, for each INT8 compute op, summed over the last tensors.

    Not the outputs are compared but the last results of compute ops: what stands behind them
    (NMS, argmax) hides small errors and blows up others.
    """
    repaired = repair(model.prepared, recipe, observations)
    prepared = repaired.prepared
    keys = [key for key in recipe.low_ops if key.name in prepared.layers]
    if not observations.probe or not keys:
        return {}
    plans = {
        number: repaired.plan(Recipe({key: repaired.recipe.ops[key]}))
        for number, key in enumerate(keys)
    }
    net, which, moved = simulate_ops(prepared, plans)
    ends = [full_name(moved.get(name, name)) for name in last_results(prepared)]
    with QuickSession(net.cut((*ends, *net.keep, which))) as session:
        run = _Runner(session, model, feed(model.inputs, observations.probe[0]), ends, which)
        truth = run(NOBODY)
        return {key: distance(truth, run(number)) for number, key in enumerate(keys)}


class _Runner:
    def __init__(
        self,
        session: Any,
        model: TensorflowModel,
        feeds: Mapping[str, Any],
        ends: list[str],
        which: str,
    ) -> None:
        self.session, self.model, self.feeds, self.ends = session, model, feeds, ends
        self.which = full_name(which)

    def __call__(self, number: int) -> list[np.ndarray]:
        feeds = {**self.feeds, self.which: number}
        if self.model.iterator is not None:
            self.session.run(self.model.iterator, self.feeds)
            feeds = {self.which: number}
        return list(self.session.run(self.ends, feeds))


def last_results(prepared: Prepared) -> list[str]:
    """Results of the compute ops that no other compute op depends on."""
    net = prepared.net
    inner = {layer.node for layer in prepared.layers.values()}
    ends = []
    for layer in prepared.layers.values():
        front, seen = [layer.out], {layer.out}
        while front:
            for heir in net.heirs.get(front.pop(), ()):
                if heir not in seen:
                    seen.add(heir)
                    front.append(heir)
        if not seen & inner - {layer.node}:
            ends.append(layer.out)
    return list(dict.fromkeys(ends))
