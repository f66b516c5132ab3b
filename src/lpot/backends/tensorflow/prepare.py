"""The graph that trials are built from: folded once, with the layers found in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from lpot.backends.tensorflow.passes.cancel_reshapes import cancel_reshapes, sink_squeezes
from lpot.backends.tensorflow.passes.drop_controls import drop_controls
from lpot.backends.tensorflow.passes.equalize_channels import (
    equalizable,
    equalize_channels,
    factors,
)
from lpot.backends.tensorflow.passes.equalize_layers import equalize_layers
from lpot.backends.tensorflow.passes.fold_affine import fold_affine
from lpot.backends.tensorflow.passes.fold_constants import fold_constants
from lpot.backends.tensorflow.passes.hoist_bias import hoist_bias
from lpot.backends.tensorflow.passes.lower_contractions import lower_contractions
from lpot.backends.tensorflow.passes.lower_products import lower_products
from lpot.backends.tensorflow.passes.merge_twins import merge_twins
from lpot.backends.tensorflow.passes.push_batchnorm import push_batchnorm
from lpot.backends.tensorflow.passes.remove_identities import remove_identities
from lpot.backends.tensorflow.passes.settle_reshapes import settle_reshapes
from lpot.backends.tensorflow.passes.sink_reshapes import sink_reshapes
from lpot.backends.tensorflow.passes.spell_hard_swish import spell_hard_swish
from lpot.backends.tensorflow.passes.turn_nhwc import turn_nhwc
from lpot.backends.tensorflow.passes.widen_halves import widen_halves
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import Follower, Layer
from lpot.backends.tensorflow.structure.match import match_followers, match_layers
from lpot.backends.tensorflow.structure.nodes import data_inputs
from lpot.core.numerics.observations import Extremes
from lpot.core.recipe import OpKey

logger = logging.getLogger(__name__)

PASSES = (
    widen_halves,
    drop_controls,
    remove_identities,
    fold_constants,
    merge_twins,
    turn_nhwc,
    remove_identities,  # constants show which transpositions change nothing
    lower_products,
    lower_contractions,
    settle_reshapes,
    cancel_reshapes,
    sink_reshapes,
    cancel_reshapes,
    sink_squeezes,
    hoist_bias,
    fold_affine,
    push_batchnorm,
    spell_hard_swish,
    merge_twins,  # what folding has made equal
    equalize_layers,
)


@dataclass(frozen=True, eq=False)
class Prepared:
    """`weights` caches quantized weights: trials differ in few of them."""

    net: Net
    layers: dict[str, Layer]
    followers: dict[str, Follower]
    refused: dict[OpKey, str]
    weights: dict[Any, Any] = field(default_factory=dict)
    patched: dict[Any, Patched] = field(default_factory=dict)  # the last repairs tried
    _equalized: dict[Any, Prepared] = field(default_factory=dict)

    @cached_property
    def equalizable(self) -> dict[str, str]:
        """Op → the tensor it makes whose channels may be equalized."""
        pairs = equalizable(self.net, self.layers, self.followers)
        return {name: self.layers[name].out for name in pairs}

    def factors(self, peaks: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """From the largest value of each channel to what to divide it by, where that pays."""
        pairs = equalizable(self.net, self.layers, self.followers)
        found = {name: factors(peaks[name], self.net, pairs[name]) for name in peaks}
        return {name: scale for name, scale in found.items() if (scale != 1.0).any()}

    def equalized(self, scales: Mapping[str, np.ndarray]) -> Prepared:
        """The same graph with its channels equalized; made once for the same factors."""
        if not scales:
            return self
        key = tuple((name, scale.tobytes()) for name, scale in sorted(scales.items()))
        if key not in self._equalized:
            net = equalize_channels(self.net, self.layers, self.followers, scales)
            self._equalized[key] = matched(net)
        return self._equalized[key]

    def inputs_of(self, layer: Layer) -> tuple[str, ...]:
        """What must be there before the layer runs, without its addend."""
        return tuple(data_inputs(self.net.nodes[layer.node]))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Inputs of matrix products, whose channels may need repair."""
        return tuple(dict.fromkeys(layer.x for layer in self.layers.values() if layer.is_matmul))

    @cached_property
    def averaged(self) -> dict[str, int]:
        """Inputs of compute ops, and how many axes each has."""
        return {layer.x: 2 if layer.is_matmul else 4 for layer in self.layers.values()}

    @cached_property
    def watched(self) -> tuple[str, ...]:
        """Every tensor that some recipe could quantize."""
        names: dict[str, None] = {}
        for layer in self.layers.values():
            names.update({layer.x: None, layer.out: None})
            if layer.residual is not None:
                names.update({layer.residual.addend: None, layer.residual.out: None})
        for follower in self.followers.values():
            names.update(dict.fromkeys((*follower.inputs, follower.out)))
        return tuple(names)


@dataclass(frozen=True, eq=False)
class Patched:
    """A graph that passes have repaired, and what is known of the tensors and ops they added."""

    prepared: Prepared
    extremes: Mapping[str, Extremes]  # by product input, as calibration saw its channels
    fresh: Mapping[str, Extremes] = field(default_factory=dict)  # tensors that are new or changed
    like: Mapping[str, str] = field(default_factory=dict)  # tensor → another of the same shape
    twins: Mapping[str, str] = field(default_factory=dict)  # op → the op whose config it shares
    # Tensor → the one it was made of, and by what its channels are multiplied, or which they are.
    scaled: Mapping[str, tuple[str, np.ndarray]] = field(default_factory=dict)
    picked: Mapping[str, tuple[str, np.ndarray]] = field(default_factory=dict)


def prepare(net: Net) -> Prepared:
    folded = net.pruned()
    for step in PASSES:
        before = len(folded.nodes)
        folded = step(folded)
        logger.debug("%s: %d → %d nodes", step.__name__, before, len(folded.nodes))
    return matched(folded)


def matched(net: Net) -> Prepared:
    """A folded graph with what can be INT8 in it."""
    layers, refused = match_layers(net)
    followers, more = match_followers(net)
    return Prepared(net, layers, followers, {**refused, **more})
