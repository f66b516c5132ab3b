"""Few bits for single ops inside another approach: the others are INT8 as usual.

A rule that asks for int2, int3 or int4, or for groups, adds such formats to what its ops can be.
Everything else is as it was: the same recipe, search and history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from onnx import NodeProto

from lpot.backends.onnx.gains import shapes_of
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.onnx.weight_only.emit import emit
from lpot.backends.onnx.weight_only.formats import Wishes, label
from lpot.backends.onnx.weight_only.kept import (
    RoundingBackend,
    formats,
    weights_alone,
    why_no_formats,
)
from lpot.backends.onnx.weight_only.passes import split_gemm
from lpot.core.backend import Approach, Observations, Target
from lpot.core.histogram import TensorStats
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe
from lpot.core.repairs import Repairs
from lpot.core.space import Capability, OpInfo, Rule, TensorRule, select

WIDTHS = {"int2": 2, "int3": 3, "int4": 4, "int8": 8}


class FewBitsBackend(RoundingBackend):
    """INT8 and few bits side by side.

    An op's rounded weight is the same in every recipe: it is rounded for the inputs of FP32.
    """

    chained = False

    def __init__(self, wishes: Wishes, rules: Sequence[Rule]) -> None:
        super().__init__(wishes)
        self.rules = tuple(rules)

    def inspect(
        self, model: OnnxModel, approach: Approach = "static", target: Target = "this"
    ) -> Capability:
        found = super().inspect(model, approach, target)
        ops = dict(found.ops)
        graph = split_gemm(model.prepared)
        nodes = {node.name: node for node in graph.nodes}
        for rule in self.rules:
            for key in select(rule, found.ops)[0]:
                ops[key] = self._with_formats(graph, nodes.get(key.name), ops[key], rule, target)
        self.guard.save()
        refused = (f"{word} is not used on this CPU: {w}" for word, w in self.guard.refused.items())
        return Capability(ops, (*found.notes, *refused))

    def _with_formats(
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
        return replace(info, choices=(*more, *info.choices), reason="", follower=False)

    def _why_none(self, refused: Sequence[OpConfig]) -> str:
        """What the guard says of the formats asked for."""
        known = self.guard.refused
        told = [f"{w}: {known[w]}" for w in map(label, refused) if w in known]
        return "; ".join(("no low-bit format pays off for it on this CPU", *told))

    def build(
        self, model: OnnxModel, recipe: Recipe, observations: Observations | None = None
    ) -> OnnxModel:
        few = weights_alone(recipe)
        built = super().build(model, without_few_bits(recipe), observations)
        if not few:
            return built
        graph = model.prepared if built.graph is model.graph else built.graph
        batches = () if observations is None else observations.probe
        stored = self.rounded(split_gemm(model.prepared), few, batches)
        names = frozenset(stored)
        precisions = {**built.precisions, **{key: c.precision for key, c in few.items()}}
        return OnnxModel(
            self,
            emit(split_gemm(graph, names), stored),
            recipe=recipe,
            precisions=precisions,
            probe=built.probe,
        )

    def outcome(self, model: OnnxModel, recipe: Recipe) -> Recipe:
        found = super().outcome(model, without_few_bits(recipe))
        return found.replace(weights_alone(recipe))

    def input_stats(
        self, model: OnnxModel, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, TensorStats]:
        return super().input_stats(model, without_few_bits(recipe), observations)

    def useful_repairs(
        self, model: OnnxModel, recipe: Recipe, observations: Observations
    ) -> Iterator[Repairs]:
        return super().useful_repairs(model, without_few_bits(recipe), observations)

    def gains(
        self, model: OnnxModel, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, float]:
        found = super().gains(model, without_few_bits(recipe), observations)
        return {**found, **self._gains(model, weights_alone(recipe), observations)}

    def _gains(
        self, model: OnnxModel, few: Mapping[OpKey, OpConfig], observations: Observations
    ) -> dict[OpKey, float]:
        """Seconds a batch, from the guard's clock: that of one row, or of as many as a prompt's."""
        graph = split_gemm(model.prepared)
        nodes = {node.name: node for node in graph.nodes}
        products = [key for key in few if nodes[key.name].op_type == "MatMul"]
        if not observations.probe or not products:
            return {}
        shapes = shapes_of(model, observations, [nodes[key.name].input[0] for key in products])
        found = {}
        for key in products:
            node = nodes[key.name]
            columns, rows = graph.weights[node.input[1]].shape
            quick = self.guard.times(columns, rows, few[key])
            plain = self.guard.times(columns, rows, FP32)
            if plain is None or quick is None:
                continue
            count = 1
            for size in shapes[node.input[0]][:-1]:
                count *= size
            each = (plain.prompt - quick.prompt) / self.wishes.prompt_length
            found[key] = plain.token - quick.token if count == 1 else count * each
        return found


def without_few_bits(recipe: Recipe) -> Recipe:
    return recipe.with_float(weights_alone(recipe))


def asked(wishes: Wishes, rule: TensorRule) -> Wishes:
    """The wishes with what a rule says of formats in their place.

    >>> asked(Wishes(), TensorRule(dtype=("int4", "fp32"), group_size=(32,))).bits
    (4,)
    """
    bits = tuple(WIDTHS[dtype] for dtype in rule.dtype if dtype in WIDTHS)
    ways = tuple(word for word in rule.algorithm if word not in ("minmax", "kl"))
    return replace(
        wishes,
        bits=bits or wishes.bits,
        group_size=rule.group_size or wishes.group_size,
        exact=bool(rule.group_size),
        scheme=tuple(s for s in rule.scheme if s in ("sym", "asym")) or wishes.scheme,
        algorithm=ways or wishes.algorithm,
    )
