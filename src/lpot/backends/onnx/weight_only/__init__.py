"""`approach: weight_only` on ONNX graphs: few bits for the weights, kernels by measurement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from onnx import NodeProto
from onnxruntime import InferenceSession

from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.inspect import PLUMBING, key_of
from lpot.backends.onnx.load import load_graph
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.onnx.passes.fold_constants import fold_constants
from lpot.backends.onnx.passes.normalize_gemm import normalize_gemm
from lpot.backends.onnx.passes.widen_halves import widen_halves
from lpot.backends.onnx.passes.write_as_matmul import write_as_matmul
from lpot.backends.onnx.prepare import prepare
from lpot.backends.onnx.run import file_session, release_pages
from lpot.backends.onnx.save import write
from lpot.backends.onnx.weight_only.emit import emit
from lpot.backends.onnx.weight_only.formats import Wishes
from lpot.backends.onnx.weight_only.guard import Times
from lpot.backends.onnx.weight_only.kept import (
    USUAL,
    RoundingBackend,
    formats,
    weights_alone,
    why_no_formats,
)
from lpot.backends.onnx.weight_only.passes import split_gemm
from lpot.backends.onnx.weight_only.sensitivity import format_errors
from lpot.backends.onnx.weight_only.two_phases import join_phases
from lpot.backends.onnx.weight_only.ways import best_ways
from lpot.core.backend import Approach, Backend, ModelSpec, Observations, Target
from lpot.core.batch import Inputs
from lpot.core.errors import UnsupportedModel
from lpot.core.progress import tracked
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe
from lpot.core.repairs import NONE
from lpot.core.results.tensors import Pair
from lpot.core.space import Capability, OpInfo, Rule
from lpot.core.strategy import Tradeoff

PASSES = (widen_halves, fold_constants, write_as_matmul, normalize_gemm, split_gemm)


class FileModel(OnnxModel):
    """The FP32 model, run from its file: no second copy of the weights beside the packed ones."""

    @property
    def session(self) -> InferenceSession:
        if self._session is None and self.source:
            with suppress(UnsupportedModel):  # one that is read in another form than it has
                self._session = file_session(self.source)
        return super().session

    @property
    def file(self) -> Path | None:
        found = Path(self.source) if self.source else None
        return found if found is not None and found.is_file() else None


class WeightOnlyBackend(RoundingBackend):
    """The same verbs, for weights in few bits. What was rounded lies in its store."""

    repairs = NONE

    def __init__(self, wishes: Wishes = USUAL, rules: Sequence[Rule] = ()) -> None:
        super().__init__(wishes, rules)
        self.batches: tuple[Inputs, ...] = ()
        self.known: dict[OpKey, tuple[Tradeoff, ...]] = {}  # what `tradeoffs` found

    def offering_few_bits(self, rules: Sequence[Rule], settings: Mapping[str, Any]) -> Backend[Any]:
        return WeightOnlyBackend(Wishes(**settings), rules)

    def load(self, source: Any, spec: ModelSpec = ModelSpec()) -> OnnxModel:
        graph, path = load_graph(source)
        model = FileModel(self, graph, source=path)
        model.session  # noqa: B018 - the passes may trust what the runtime has accepted
        return self._prepared(model)

    def _prepared(self, model: OnnxModel) -> OnnxModel:
        model.prepared = prepare(model.graph, model.session, PASSES)
        return model

    def inspect(
        self, model: OnnxModel, approach: Approach = "weight_only", target: Target = "this"
    ) -> Capability:
        release_pages(model.graph.weights.values())  # that the fingerprint has read
        present = {node.name: node for node in model.prepared.nodes}
        ops: dict[OpKey, OpInfo] = {}
        for given in tracked(model.graph.nodes):  # the first time, kernels are tried and timed
            if given.op_type in PLUMBING:
                continue
            key, node = key_of(given), present.get(given.name)
            ops[key] = self._info(model.prepared, node, key, target)
        return Capability(self.with_formats(model.prepared, ops, target), self.refused())

    def _info(self, graph: Graph, node: NodeProto | None, key: OpKey, target: Target) -> OpInfo:
        if node is None:
            return OpInfo(key, reason="folded into its neighbour before quantization")
        reason = why_no_formats(graph, node)
        if reason:
            return OpInfo(key, reason=reason)
        choices = self.allowed(graph, node, formats(graph, node, self.wishes, target))
        if choices == (FP32,):
            return OpInfo(key, reason="no low-bit format pays off for it on this CPU")
        return OpInfo(key, choices)

    def observe(
        self, model: OnnxModel, batches: Iterable[Inputs], sizes: Sequence[int] = (0,)
    ) -> dict[int, Observations]:
        """The data themselves are kept: what is gathered from them fits in no report."""
        limit = max(sizes) or None
        self.batches = tuple(islice(batches, limit))
        found = Observations(len(self.batches), {}, self.batches[:2])
        return {size: replace(found, samples=size or found.samples) for size in sizes}

    def outcome(self, model: OnnxModel, recipe: Recipe) -> Recipe:
        """Each op becomes what the recipe says: none depends on its neighbours."""
        return recipe

    def build(
        self, model: OnnxModel, recipe: Recipe, observations: Observations | None = None
    ) -> OnnxModel:
        alone = weights_alone(recipe)
        rest = replace(recipe, ops={k: c for k, c in recipe.ops.items() if k not in alone})
        graph = super().build(model, rest, observations).graph
        if graph is model.graph:
            graph = model.prepared
        stored = self.rounded(model.prepared, alone, self.batches)
        precisions = {key: config.precision for key, config in recipe.ops.items()}
        probe = observations.probe[0] if observations is not None and observations.probe else None
        return OnnxModel(
            self, emit(graph, stored), recipe=recipe, precisions=precisions, probe=probe
        )

    def tradeoffs(
        self,
        model: OnnxModel,
        choices: Mapping[OpKey, Sequence[OpConfig]],
        observations: Observations,
    ) -> dict[OpKey, tuple[Tradeoff, ...]]:
        """Of each op and format: the error of the outputs, the time, the bytes."""
        low = {
            key.name: [config for config in options if not config.is_float]
            for key, options in choices.items()
        }
        self.round_all(model.prepared, low, self.batches)
        store = self.the_store
        low = {name: best_ways(name, options, store) for name, options in low.items()}
        errors = format_errors(model.prepared, low, observations.probe[0], store)
        whole = self._whole(model.prepared, low)
        nodes = {node.name: node for node in model.prepared.nodes}
        self.known = {
            key: tuple(
                self._tradeoff(model.prepared, nodes[key.name], config, errors[key.name], whole)
                for config in options
                if config.is_float or config in low[key.name]
            )
            for key, options in choices.items()
        }
        return self.known

    def write_joined(self, token: OnnxModel, prompt: OnnxModel, path: Path) -> None:
        """One file of two models: for a single token, and for more of them."""
        write(join_phases(token.graph, prompt.graph), path)

    def rank(
        self, model: OnnxModel, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, float]:
        """Error in the recipe's formats, as far as `tradeoffs` was asked: nothing is run again."""
        return {
            key: option.error
            for key, options in self.known.items()
            for option in options
            if option.config == recipe.ops.get(key)
        }

    def advise(
        self, model: OnnxModel, recipe: Recipe, observations: Observations
    ) -> Iterator[Recipe]:
        """Ranges of activations are not chosen here."""
        return iter(())

    def gains(
        self, model: OnnxModel, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, float]:
        """Time is in the tradeoffs."""
        return {}

    def tensors(
        self, model: OnnxModel, low: OnnxModel, ops: Sequence[OpKey], inputs: Inputs
    ) -> dict[OpKey, Pair]:
        """Hidden states of every layer at once would not fit in memory."""
        return {}

    def _whole(self, graph: Graph, names: Iterable[str]) -> Times:
        """All the products in FP32."""
        shapes = [_product_shape(graph, node) for node in graph.nodes if node.name in set(names)]
        times = [self.guard.times(*shape, FP32) for shape in shapes if shape is not None]
        known = [each for each in times if each is not None]
        return Times(sum(t.token for t in known) or 1.0, sum(t.prompt for t in known) or 1.0)

    def _tradeoff(
        self,
        graph: Graph,
        node: NodeProto,
        config: OpConfig,
        errors: Mapping[OpConfig, float],
        whole: Times,
    ) -> Tradeoff:
        shape = _product_shape(graph, node)
        times = None if shape is None else self.guard.times(*shape, config)
        times = times or Times(0.0, 0.0)  # looking up rows costs nothing
        cost = times.mix(whole, self.wishes.prompt)
        phases = times.token / whole.token, times.prompt / whole.prompt
        return Tradeoff(config, errors.get(config, 0.0), cost, _bytes(graph, node, config), phases)


def _product_shape(graph: Graph, node: NodeProto) -> tuple[int, int] | None:
    """Columns and rows of a product's weight; None for a table."""
    if node.op_type == "Gather":
        return None
    columns, rows = graph.weights[node.input[1]].shape
    return int(columns), int(rows)


def _bytes(graph: Graph, node: NodeProto, config: OpConfig) -> int:
    name = node.input[0] if node.op_type == "Gather" else node.input[1]
    array = graph.weights[name]
    if config.is_float or config.weight is None or config.weight.bits is None:
        return int(array.nbytes)
    columns = array.shape[1] if node.op_type == "Gather" else array.shape[0]
    size = config.weight.group_size or columns
    bits = {3: 4, 7: 8}.get(config.weight.bits, config.weight.bits)
    rows = array.size // columns
    return int(rows * -(-columns // size) * (size * bits / 8 + 4))  # groups are stored whole
