"""Take the few outlier channels between two matrix products out into narrow products of their own.

An activation like GELU stands between the two, so that no factor can pass. In the wide products the
outliers become zero and their range is that of the others; the narrow ones keep a range for
the outliers, and what they give is added to the sum that the second product ends in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lpot.backends.tensorflow.passes.equalize_channels import HOMOGENEOUS, input_axis
from lpot.backends.tensorflow.prepare import Patched, Prepared, matched
from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.affine import is_transposed, scaled_weight
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import Layer
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    data_inputs,
    make_const,
    make_node,
    with_inputs,
)
from lpot.core.numerics.observations import Extremes

MOST = 16  # channels taken out of one tensor
OUTLIER = 2.0  # times the largest channel of those that stay


@dataclass(frozen=True, eq=False)
class Pair:
    """The product that makes outlier channels, the one that reads them, and which they are."""

    first: Layer
    second: Layer
    outliers: np.ndarray


def outlier_pairs(prepared: Prepared, extremes: Mapping[str, Extremes]) -> Iterator[Pair]:
    readers = {layer.node: layer for layer in prepared.layers.values() if layer.is_matmul}
    for first in prepared.layers.values():
        if not first.is_matmul or first.activation in HOMOGENEOUS or first.out not in extremes:
            continue  # without an activation in the way, equalization has balanced them
        user = prepared.net.only_user(first.out)
        second = readers.get(user.name) if user is not None else None
        if second is None or not _ends_in_a_sum(second):
            continue
        outliers = outlier_channels(extremes[first.out])
        if outliers.size:
            yield Pair(first, second, outliers)


def outlier_channels(found: Extremes) -> np.ndarray:
    """The few channels that alone stretch the range; none where many do."""
    largest = found.largest
    most = min(MOST, largest.size // 16)
    if not most:
        return np.zeros(0, np.int64)
    order = np.argsort(-largest, kind="stable")
    usual = largest[order[most]]
    return np.sort(order[:most][largest[order[:most]] > OUTLIER * usual]) if usual else order[:0]


def _ends_in_a_sum(layer: Layer) -> bool:
    return not layer.activation and (layer.residual is not None or layer.bias is not None)


def split_outliers(patched: Patched) -> Patched:
    prepared = patched.prepared
    changes: dict[str, NodeDef] = {}
    like: dict[str, str] = {}
    twins: dict[str, str] = {}
    fresh: dict[str, Extremes] = {}
    picked: dict[str, tuple[str, np.ndarray]] = {}
    name_for = Namer(prepared.net.nodes)
    for pair in outlier_pairs(prepared, patched.extremes):
        made = _Split(prepared.net, pair, name_for(f"{pair.second.node}/outliers"))
        changes.update((node.name, node) for node in made.nodes())
        like.update(made.like)
        twins |= {made.up: pair.first.key.name, made.down: pair.second.key.name}
        seen, outliers = patched.extremes[pair.first.out], pair.outliers
        fresh[pair.first.out] = _without(seen, outliers)
        fresh[made.between] = Extremes(seen.low[outliers], seen.high[outliers])
        picked[made.between] = (pair.first.out, outliers)
    if not changes:
        return patched
    # A tensor that keeps its name and is quieter now counts as quieter for what comes next.
    return replace(
        patched,
        prepared=matched(prepared.net.changed(changes).pruned()),
        extremes={name: fresh.get(name, seen) for name, seen in patched.extremes.items()},
        fresh={**patched.fresh, **fresh},
        like={**patched.like, **like},
        twins={**patched.twins, **twins},
        picked={**patched.picked, **picked},
    )


def _without(seen: Extremes, outliers: np.ndarray) -> Extremes:
    low, high = seen.low.copy(), seen.high.copy()
    low[outliers] = high[outliers] = 0.0
    return Extremes(low, high)


class _Split:
    """The nodes of one pair, wide and narrow."""

    def __init__(self, net: Net, pair: Pair, stem: str) -> None:
        self.net, self.pair, self.stem = net, pair, stem
        self.up, self.down = f"{stem}/first", f"{stem}/second"
        self.between = ""  # the narrow tensor; known once its nodes are made
        self.like: dict[str, str] = {}

    def nodes(self) -> list[NodeDef]:
        return [*self._wide_first(), *self._narrow_first(), *self._second(), *self._sum()]

    def _value(self, name: str) -> np.ndarray:
        value = self.net.constant(name)
        assert value is not None  # layers have constant weights and biases
        return value

    def _wide_first(self) -> list[NodeDef]:
        """The first product without the outlier channels: zeros, so that its width stays even."""
        layer = self.pair.first
        node = self.net.nodes[layer.node]
        mask = np.ones(layer.channels)
        mask[self.pair.outliers] = 0.0
        quiet = scaled_weight(node, self._value(layer.weight), mask)
        weight = make_const(f"{self.stem}/first_quiet", quiet)
        made = [weight, with_inputs(node, [node.input[0], weight.name, *node.input[2:]])]
        if layer.bias is not None:
            add = self._bias_add(layer)
            kept = (self._value(layer.bias) * mask).astype(np.float32)
            bias = make_const(f"{self.stem}/first_bias", kept)
            made += [bias, with_inputs(add, [layer.node, bias.name])]
        return made

    def _narrow_first(self) -> list[NodeDef]:
        layer, outliers = self.pair.first, self.pair.outliers
        node = self.net.nodes[layer.node]
        value = self._value(layer.weight)
        part = value[outliers].T if is_transposed(node) else value[:, outliers]
        weight = make_const(f"{self.stem}/first_outliers", np.ascontiguousarray(part))
        made = [
            weight,
            make_node("MatMul", self.up, [layer.x, weight.name], T=tf.float32),
        ]
        start, last = layer.node, self.up
        if layer.bias is not None:
            bias = make_const(f"{self.stem}/bias_outliers", self._value(layer.bias)[outliers])
            add = make_node("BiasAdd", f"{self.stem}/biased", [self.up, bias.name], T=tf.float32)
            made += [bias, add]
            start, last = self._bias_add(layer).name, add.name
        copies, self.between = _copied(self.net, start, layer.out, last, self.stem)
        return [*made, *copies]

    def _second(self) -> list[NodeDef]:
        layer, outliers = self.pair.second, self.pair.outliers
        node = self.net.nodes[layer.node]
        value = self._value(layer.weight)
        axis = input_axis(self.net, layer)
        quiet = value.copy()
        quiet[(slice(None),) * axis + (outliers,)] = 0.0
        rows = np.take(value, outliers, axis)
        narrow = np.ascontiguousarray(rows.T if is_transposed(node) else rows)
        weights = [
            make_const(f"{self.stem}/second_quiet", quiet),
            make_const(f"{self.stem}/second_outliers", narrow),
        ]
        return [
            *weights,
            with_inputs(node, [node.input[0], weights[0].name, *node.input[2:]]),
            make_node("MatMul", self.down, [self.between, weights[1].name], T=tf.float32),
        ]

    def _sum(self) -> list[NodeDef]:
        """Both products add into one sum: the one that was there, or one behind the bias."""
        layer = self.pair.second
        self.like[self.down] = layer.out
        if layer.residual is None:
            add = self._bias_add(layer)
            inner = with_inputs(add, list(add.input))
            inner.name = f"{self.stem}/inner"
            self.like[inner.name] = layer.out
            total = make_node("AddV2", add.name, [inner.name, self.down], T=tf.float32)
            return [inner, total]
        before = make_node(
            "AddV2", f"{self.stem}/sum", [self.down, layer.residual.addend], T=tf.float32
        )
        self.like[before.name] = layer.residual.addend
        add = self.net.nodes[layer.residual.add]
        return [before, with_inputs(add, [layer.out, before.name])]

    def _bias_add(self, layer: Layer) -> NodeDef:
        add = self.net.only_user(layer.node)
        assert add is not None
        return add


def _copied(net: Net, start: str, end: str, other: str, stem: str) -> tuple[list[NodeDef], str]:
    """The nodes that make `end` of `start` once more, behind `other`; and the last of them."""
    needed = net.ancestors([end])
    renamed = {start: other}
    made: list[NodeDef] = []
    for name in net.order:
        node = net.nodes[name]
        if name not in needed or not any(source in renamed for source in data_inputs(node)):
            continue
        copy = with_inputs(node, [renamed.get(source, source) for source in data_inputs(node)])
        copy.name = renamed[name] = f"{stem}/{len(made)}"
        made.append(copy)
    return made, renamed[end]
