"""A backend that rounds weights by themselves, and keeps what it has rounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import NodeProto

from lpot.backends.onnx import OnnxBackend
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.inspect import why_not
from lpot.backends.onnx.weight_only.emit import Stored
from lpot.backends.onnx.weight_only.formats import (
    NEAREST,
    Wishes,
    asked,
    label,
    product_choices,
    table_choices,
)
from lpot.backends.onnx.weight_only.guard import Guard
from lpot.backends.onnx.weight_only.rounding import round_all
from lpot.backends.onnx.weight_only.store import WeightStore
from lpot.core.backend import Target
from lpot.core.batch import Inputs
from lpot.core.errors import CalibrationError
from lpot.core.recipe import OpConfig, OpKey, Recipe
from lpot.core.space import OpInfo, Rule, select

NORMS = ("LayerNormalization", "RMSNormalization")  # with anything in front, such as Skip
SMALL = 4096  # weights, below which nothing is won
KINDS = ("MatMul", "Gemm", "Gather", "Einsum")
USUAL = Wishes()
LAST = 99  # bits of what is not stored in few
COMPARED = "compared"  # a folder of weights


class RoundingBackend(OnnxBackend):
    """What the approach `weight_only`, and few bits inside another approach, have in common."""

    chained = True  # is a weight rounded for the inputs that the rounded ones before it give?

    def __init__(self, wishes: Wishes = USUAL, rules: Sequence[Rule] = ()) -> None:
        self.wishes = wishes
        self.rules = tuple(rules)  # that ask for formats of their own
        self.store: WeightStore | None = None
        self.guard = Guard(self.versions(), wishes.prompt_length)

    def keep_in(self, folder: Path) -> None:
        """Where rounded weights are kept: a run that was killed finds them there again.

        Where rows are held out to compare ways of rounding, each way has seen fewer of them.
        """
        several = len(set(self.wishes.algorithm)) > 1
        self.store = WeightStore(folder / COMPARED if several else folder)
        self.store.drop_damaged()

    def find_weights(self, folder: Path, recipe: Recipe) -> bool:
        """Use the weights that an earlier run has kept there, if they are all there."""
        for place in (folder, folder / COMPARED):
            store = WeightStore(place) if place.is_dir() else None
            words = [(key.name, label(config)) for key, config in weights_alone(recipe).items()]
            if store is not None and all(store.has(*word) for word in words):
                self.store = store
                return True
        return not weights_alone(recipe)

    def with_formats(
        self, graph: Graph, ops: Mapping[OpKey, OpInfo], target: Target
    ) -> dict[OpKey, OpInfo]:
        """What ops can be, with the formats that rules ask for."""
        found, nodes = dict(ops), {node.name: node for node in graph.nodes}
        for rule in self.rules:
            for key in select(rule, ops)[0]:
                found[key] = self._with_asked(graph, nodes.get(key.name), found[key], rule, target)
        self.guard.save()
        return found

    def _with_asked(
        self, graph: Graph, node: NodeProto | None, info: OpInfo, rule: Rule, target: Target
    ) -> OpInfo:
        """What the op can be besides what it could; or the same, with the reason why."""
        reason = "no such op is left" if node is None else why_no_formats(graph, node)
        if node is None or reason:
            return replace(info, reason=info.reason or reason)
        assert rule.weight is not None
        possible = formats(graph, node, asked(self.wishes, rule.weight), target)
        few = [c for c in possible if c.mode == "weight_only" and c not in info.choices]
        more = self.allowed(graph, node, few)
        if not more:
            return replace(info, reason=info.reason or self._why_none(few))
        choices = tuple(sorted((*more, *info.choices), key=_bits))
        return replace(info, choices=choices, reason="", follower=False)

    def _why_none(self, refused: Sequence[OpConfig]) -> str:
        """What the guard says of the formats asked for."""
        known = self.guard.refused
        told = [f"{w}: {known[w]}" for w in map(label, refused) if w in known]
        return "; ".join(("no low-bit format pays off for it on this CPU", *told))

    def refused(self) -> tuple[str, ...]:
        """A note on each format that the guard has ruled out."""
        return tuple(
            f"{word} is not used on this CPU: {w}" for word, w in self.guard.refused.items()
        )

    def allowed(
        self, graph: Graph, node: NodeProto, choices: Iterable[OpConfig]
    ) -> tuple[OpConfig, ...]:
        """Those that this CPU's kernels are good for; looking up rows is always quick enough."""
        if node.op_type == "Gather":
            return tuple(choices)
        columns, rows = graph.weights[node.input[1]].shape
        share = self.wishes.prompt
        return tuple(c for c in choices if self.guard.allows(columns, rows, c, share))

    def rounded(
        self, graph: Graph, configs: Mapping[OpKey, OpConfig], batches: Sequence[Inputs]
    ) -> dict[str, Stored]:
        """The weights of these ops, by name of their nodes."""
        if not batches:
            self._check_kept(configs)
        self.round_all(graph, {key.name: (c,) for key, c in configs.items()}, batches)
        store = self.the_store
        return {key.name: store.get(key.name, label(c)) for key, c in configs.items()}

    def round_all(
        self, graph: Graph, wanted: Mapping[str, Sequence[OpConfig]], batches: Sequence[Inputs]
    ) -> None:
        round_all(graph, wanted, batches, self.the_store, self.chained)

    def _check_kept(self, configs: Mapping[OpKey, OpConfig]) -> None:
        """Without data nothing but rounding to nearest must pass for what a recipe asks for."""
        for key, config in configs.items():
            word = label(config)
            if not word.endswith(f"-{NEAREST}") and not self.the_store.has(key.name, word):
                raise CalibrationError(
                    f"{key} in {word} needs calibration data: rounding follows its inputs"
                )

    @property
    def the_store(self) -> WeightStore:
        self.store = self.store or WeightStore()
        return self.store


def weights_alone(recipe: Recipe) -> dict[OpKey, OpConfig]:
    """The ops whose weights are rounded by themselves."""
    return {key: config for key, config in recipe.ops.items() if config.mode == "weight_only"}


def formats(graph: Graph, node: NodeProto, wishes: Wishes, target: Target) -> tuple[OpConfig, ...]:
    """What a node's weight may be, the fewest bits first and FP32 last.

    `why_no_formats` tells whether there are any.
    """
    if node.op_type == "Gather":
        return tuple(table_choices(wishes, graph.weights[node.input[0]].shape[1]))
    columns = len(graph.weights[node.input[1]])
    return tuple(product_choices(wishes, target, columns, _is_levelled(graph, node)))


def _is_levelled(graph: Graph, node: NodeProto) -> bool:
    """Does a norm over each token give its input?"""
    before = graph.producers.get(node.input[0])
    return before is not None and before.op_type.endswith(NORMS)


def why_no_formats(graph: Graph, node: NodeProto) -> str:
    """Why a weight must stay as it is; empty when it need not."""
    if node.op_type not in KINDS:
        return "has no weight that can be stored in few bits"
    if node.op_type == "MatMul" and graph.is_constant(node.input[1]):
        weight = graph.weights[node.input[1]]
        if weight.ndim != 2:
            return "its weight is not a matrix"
        if weight.size < SMALL:
            return "its weight is small: nothing is gained"
        if weight.dtype != np.float32:
            return "its weight is not float32"
    if node.op_type == "Gather" and _columns(graph, node) is None:
        return "does not look up rows of a constant matrix"
    return why_not(graph, node)


def _columns(graph: Graph, node: NodeProto) -> int | None:
    table = graph.weights.get(node.input[0])
    return int(table.shape[1]) if table is not None and table.ndim == 2 else None


def _bits(config: OpConfig) -> int:
    """The fewest bits come first, and behind them whatever else an op can be."""
    weight = config.weight
    if config.mode != "weight_only" or weight is None or weight.bits is None:
        return LAST
    return weight.bits
