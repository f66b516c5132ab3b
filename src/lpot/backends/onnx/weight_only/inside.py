"""Few bits for single ops inside another approach: the others are INT8 as usual.

A rule that asks for int2, int3 or int4, or for groups, adds such formats to what its ops can be.
Everything else is as it was: the same recipe, search and history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lpot.backends.onnx.gains import shapes_of
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.onnx.weight_only.emit import emit
from lpot.backends.onnx.weight_only.kept import RoundingBackend, weights_alone
from lpot.backends.onnx.weight_only.passes import split_gemm
from lpot.core.backend import Approach, Observations, Target
from lpot.core.numerics.histogram import TensorStats
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe
from lpot.core.repairs import Repairs
from lpot.core.space import Capability


class FewBitsBackend(RoundingBackend):
    """INT8 and few bits side by side.

    An op's rounded weight is the same in every recipe: it is rounded for the inputs of FP32.
    """

    chained = False

    def inspect(
        self, model: OnnxModel, approach: Approach = "static", target: Target = "this"
    ) -> Capability:
        found = super().inspect(model, approach, target)
        ops = self.with_formats(split_gemm(model.prepared), found.ops, target)
        return Capability(ops, (*found.notes, *self.refused()))

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
