"""Ways to round a weight to one format, and which of them an op takes.

Of several ways the one with the least error of the outputs is taken, on inputs that had no part in
the rounding: what learns most from its data is also the first to learn too much from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lpot.backends.onnx.weight_only.emit import Stored
from lpot.backends.onnx.weight_only.formats import (
    AWQ,
    BY_COST,
    GPTQ,
    LEARNED,
    SIGNROUND,
    format_of,
    label,
    same_format,
)
from lpot.backends.onnx.weight_only.signround import signround
from lpot.backends.onnx.weight_only.store import WeightStore
from lpot.core.recipe import OpConfig
from lpot.core.weight_only.awq import scaled
from lpot.core.weight_only.gptq import Factored, factored, gptq
from lpot.core.weight_only.learned import learned
from lpot.core.weight_only.nearest import round_to_nearest

EVERY = 4  # batches, of which one is held out
GAINS = 0.01  # of the error that a dearer way must save


@dataclass(frozen=True, eq=False)
class Seen:
    """What a product's inputs were; factored once for all formats and products with them."""

    hessian: np.ndarray  # to round by
    judge: np.ndarray  # to compare by

    @cached_property
    def factored(self) -> Factored:
        return factored(self.hessian)


def rounded(weight: np.ndarray, config: OpConfig, inputs: Seen | None) -> Stored:
    """The weight in the config's format and way; to nearest where no inputs were seen."""
    assert config.weight is not None
    fmt, word = format_of(config), config.weight.algorithm
    if inputs is None:
        return Stored(round_to_nearest(weight, fmt))
    if word == SIGNROUND:
        return Stored(signround(weight, inputs.hessian, fmt))
    if word in (GPTQ, LEARNED):
        found = gptq(weight, inputs.factored, fmt)
        return Stored(learned(weight, inputs.hessian, found) if word == LEARNED else found)
    energy = np.diagonal(inputs.hessian).astype(np.float32)
    if word == AWQ:
        scales, codes = scaled(weight, energy, fmt)
        return Stored(codes, 1 / scales)
    return Stored(round_to_nearest(weight, fmt, energy))


def compares(wanted: Mapping[str, Sequence[OpConfig]]) -> bool:
    """Is there an op with several ways to one format?"""
    for configs in wanted.values():
        low = [same_format(config) for config in configs if config.mode == "weight_only"]
        if len(set(low)) < len(low):
            return True
    return False


def held_out(batches: int) -> frozenset[int]:
    """The batches that ways are compared on; a single one serves for both.

    >>> sorted(held_out(9)), sorted(held_out(2)), sorted(held_out(1))
    ([3, 7], [1], [])
    """
    found = range(EVERY - 1, batches, EVERY)
    return frozenset(found or range(1, batches))


def best_way(op: str, configs: Sequence[OpConfig], store: WeightStore) -> OpConfig:
    """Of ways to one format: from the cheapest on, a dearer one where it gains something."""
    ways = sorted(configs, key=_cost)
    best = ways[0]
    for config in ways[1:]:
        if store.loss(op, label(config)) < (1 - GAINS) * store.loss(op, label(best)):
            best = config
    return best


def best_ways(op: str, configs: Sequence[OpConfig], store: WeightStore) -> list[OpConfig]:
    """The configs with one way to each format of weights alone; others stay as they are."""
    alike: dict[OpConfig, list[OpConfig]] = {}
    for config in configs:
        if config.mode == "weight_only":
            alike.setdefault(same_format(config), []).append(config)
    kept = {best_way(op, ways, store) for ways in alike.values()}
    return [config for config in configs if config.mode != "weight_only" or config in kept]


def _cost(config: OpConfig) -> int:
    assert config.weight is not None
    word = config.weight.algorithm
    return BY_COST.index(word) if word in BY_COST else 0
