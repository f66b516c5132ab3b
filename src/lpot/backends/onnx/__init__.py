"""ONNX Runtime: the embedded default backend."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from lpot.backends.onnx import abilities
from lpot.backends.onnx import save as saving
from lpot.backends.onnx.advise import input_stats, useful_repairs
from lpot.backends.onnx.bodies import Body, parts, places, put_back
from lpot.backends.onnx.build import Corrections, build_graph
from lpot.backends.onnx.child import check_opens
from lpot.backends.onnx.decoder.in_place import InPlace
from lpot.backends.onnx.gains import gains
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.inspect import inspect, key_of
from lpot.backends.onnx.load import load_graph
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.onnx.observe import observe
from lpot.backends.onnx.passes.smooth_channels import smooth_channels, smoothed_means
from lpot.backends.onnx.passes.spread_layernorm import spread_layernorm
from lpot.backends.onnx.passes.store_halves import store_halves
from lpot.backends.onnx.plan import observed_tensors, plan
from lpot.backends.onnx.prepare import prepare
from lpot.backends.onnx.profile import profile
from lpot.backends.onnx.rank import rank
from lpot.backends.onnx.recurrent import with_domain
from lpot.backends.onnx.run import file_session, run_session, session
from lpot.backends.onnx.tensors import tensors, wiring
from lpot.backends.onnx.turns import Taps
from lpot.core.backend import Approach, Backend, ModelSpec, Observations, Target
from lpot.core.batch import Inputs
from lpot.core.errors import CalibrationError, UnsupportedModel, UnsupportedOp, did_you_mean
from lpot.core.numerics.histogram import TensorStats
from lpot.core.recipe import OpKey, Recipe
from lpot.core.repairs import Repairs
from lpot.core.results.profile import OpTime
from lpot.core.results.report import GraphNode
from lpot.core.results.tensors import Pair
from lpot.core.space import Capability, Rule


class OnnxBackend(Backend[OnnxModel]):
    """`approach` is fixed by the original's framework names (qlinearops, integerops)."""

    name = "onnx"
    stores_halves = "makes nothing faster"
    best_name = "best_model.onnx"
    kernels = abilities.Kernels()
    repairs = Repairs(bias_correction=True, weight_correction=True)  # those that a user may ask for

    def for_approach(self, approach: Approach, settings: Mapping[str, Any]) -> Backend[Any]:
        if approach != "weight_only":
            return self
        from lpot.backends.onnx.weight_only import WeightOnlyBackend
        from lpot.backends.onnx.weight_only.formats import Wishes

        return WeightOnlyBackend(Wishes(**settings))

    def offering_few_bits(self, rules: Sequence[Rule], settings: Mapping[str, Any]) -> Backend[Any]:
        from lpot.backends.onnx.weight_only.formats import Wishes
        from lpot.backends.onnx.weight_only.inside import FewBitsBackend

        return FewBitsBackend(Wishes(**settings), rules)

    def load(self, source: Any, spec: ModelSpec = ModelSpec()) -> OnnxModel:
        graph, path = load_graph(source)
        model = OnnxModel(self, graph, source=path)
        model.session  # noqa: B018 - the passes may trust what the runtime has accepted
        return self._prepared(model)

    def _prepared(self, model: OnnxModel) -> OnnxModel:
        model.prepared = prepare(model.graph, model.session)
        found = []
        for node, item, proto in places(model.prepared):
            with suppress(UnsupportedModel):  # one that is no model by itself stays as it is
                body = OnnxModel(self, load_graph(proto)[0])
                body.session  # noqa: B018 - nor one that the runtime does not take
                formal = tuple(value.name for value in item.g.input)
                found.append(Body(node, item.name, formal, self._prepared(body)))
        model.bodies = tuple(found)
        return model

    def open(self, graph: Graph, recipe: Recipe | None = None) -> Any:
        """What runs a graph; a runtime over the same files overrides it."""
        return session(graph)

    def open_file(self, path: Path, recipe: Recipe | None = None) -> Any:
        return file_session(os.fspath(path))

    def inspect(
        self, model: OnnxModel, approach: Approach = "static", target: Target = "this"
    ) -> Capability:
        return inspect(model, approach, target)

    def observe(
        self, model: OnnxModel, batches: Iterable[Inputs], sizes: Sequence[int] = (0,)
    ) -> dict[int, Observations]:
        capable = {info.key.name: info.key.kind for info in self.inspect(model, "auto").low()}
        tensors = observed_tensors(model.prepared, capable)
        if not model.bodies:
            return observe(model, tensors, batches, sizes)
        taps = Taps(model, model.bodies)
        seen = observe(model, tensors, taps(batches), sizes)
        inner = {
            body.name: self.observe(body.model, taps.fed[body.name])[0]
            for body in model.bodies
            if taps.fed[body.name]
        }
        return {size: replace(one, bodies=inner) for size, one in seen.items()}

    def build(
        self, model: OnnxModel, recipe: Recipe, observations: Observations | None = None
    ) -> OnnxModel:
        if not recipe.low_ops:
            halves = [key for key, config in recipe.ops.items() if config.precision == "fp16"]
            if halves:
                return self._halved(model, recipe, halves)
            return OnnxModel(self, model.graph, model.prepared, recipe, source=model.source)
        _check_names(model, recipe)
        source, repaired = self._repaired(model, recipe, observations)
        drawn = plan(source, recipe, repaired, self.kernels)
        if drawn.tensors and observations is None:
            raise CalibrationError(
                "static quantization needs calibration data; dynamic quantization does not"
            )
        stats = {**(observations.tensors if observations is not None else {}), **repaired}
        cache = model.caches.setdefault(recipe.repairs, {})
        corrections = _corrections(recipe, observations, source)
        graph = spread_layernorm(build_graph(source, drawn, stats, cache, corrections))
        precisions = {key: drawn.precision(key) for key in map(key_of, model.graph.nodes)}
        if model.bodies:
            inner = self._built_bodies(model, recipe, observations)
            graph = put_back(graph, {place: body.graph for place, body in inner.items()})
            for body in inner.values():
                precisions |= body.precisions
        graph = with_domain(graph)
        check_opens(graph, int(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL))  # as users do
        probe = observations.probe[0] if observations is not None and observations.probe else None
        return OnnxModel(self, graph, recipe=recipe, precisions=precisions, probe=probe)

    def _halved(self, model: OnnxModel, recipe: Recipe, halves: Sequence[OpKey]) -> OnnxModel:
        """Weights stored as float16, computed with as float32."""
        graph, stored = store_halves(model.graph, {key.name for key in halves})
        became = {key: "fp16" if key.name in stored else "fp32" for key in recipe.ops}
        return OnnxModel(self, graph, recipe=recipe, precisions=became)

    def outcome(self, model: OnnxModel, recipe: Recipe) -> Recipe:
        dropped = []
        for part in parts(model):
            drawn = plan(part.prepared, recipe, kernels=self.kernels)
            here = {node.name for node in part.prepared.nodes}
            low = (key for key in recipe.low_ops if key.name in here)
            dropped += [key for key in low if drawn.precision(key) == "fp32"]
        return recipe.with_float(dropped)

    def _built_bodies(
        self, model: OnnxModel, recipe: Recipe, observations: Observations | None
    ) -> dict[tuple[str, str], OnnxModel]:
        """The bodies of If, Loop and Scan; one that no batch has entered stays as it is."""
        found = {}
        for body in model.bodies:
            seen = observations.bodies.get(body.name) if observations is not None else None
            names = {node.name for part in parts(body.model) for node in part.graph.nodes}
            ops = {key: config for key, config in recipe.ops.items() if key.name in names}
            if seen is None:
                ops = {key: config for key, config in ops.items() if config.mode == "dynamic"}
            own = replace(recipe, ops=ops)
            if own.low_ops:
                found[body.node.name, body.place] = self.build(body.model, own, seen)
        return found

    def _repaired(
        self, model: OnnxModel, recipe: Recipe, observations: Observations | None
    ) -> tuple[Graph, dict[str, TensorStats]]:
        """The graph with the recipe's repairs, and the statistics of tensors that these made."""
        alpha = recipe.repairs.smoothing
        if alpha is None or observations is None:
            return model.prepared, {}
        low = [key.name for key in recipe.low_ops if recipe.ops[key].mode == "static"]
        return smooth_channels(model.prepared, low, observations.channels, alpha)

    def run(self, model: OnnxModel, inputs: Inputs) -> list[np.ndarray]:
        return run_session(model.session, model.inputs, inputs)

    def in_place(self, model: OnnxModel, rows: int, room: int) -> InPlace | None:
        return InPlace.opened(model.graph, model.session, rows, room)

    def save(self, model: OnnxModel, path: Path) -> Path:
        return saving.save(model, path)

    def restore(self, path: Path) -> OnnxModel:
        return saving.restore(self, path)

    def rank(
        self, model: OnnxModel, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, float]:
        return rank(self, model, recipe, observations)

    def input_stats(
        self, model: OnnxModel, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, TensorStats]:
        return input_stats(model.prepared, recipe, observations.tensors)

    def useful_repairs(
        self, model: OnnxModel, recipe: Recipe, observations: Observations
    ) -> Iterator[Repairs]:
        return useful_repairs(model.prepared, recipe, observations.channels)

    def gains(
        self, model: OnnxModel, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, float]:
        return gains(model, recipe, observations, self.versions())

    def tensors(
        self, model: OnnxModel, low: OnnxModel, ops: Sequence[OpKey], inputs: Inputs
    ) -> dict[OpKey, Pair]:
        return tensors(model, low, ops, inputs)

    def usage(self, model: OnnxModel, path: Path) -> str:
        feeds = ", ".join(f'"{name}": {_identifier(name)}' for name in model.input_names)
        return (
            f'import onnxruntime\nsession = onnxruntime.InferenceSession("{path}")\n'
            f"outputs = session.run(None, {{{feeds}}})"
        )

    def wiring(self, model: OnnxModel) -> tuple[GraphNode, ...]:
        return wiring(model)

    def profile(self, model: OnnxModel, inputs: Inputs, runs: int) -> tuple[OpTime, ...]:
        """Seconds of each op, over so many runs."""
        return profile(model, inputs, runs)

    def versions(self) -> dict[str, str]:
        return {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__}

    def worst_error(self, kind: str) -> float:
        return abilities.worst_error(kind)


def _check_names(model: OnnxModel, recipe: Recipe) -> None:
    """A recipe for another model must not pass as one for this."""
    known = {node.name for part in parts(model) for node in part.graph.nodes}
    for key in recipe.low_ops:
        if key.name not in known:
            reason = "the recipe names it, but the model has no such op"
            raise UnsupportedOp(key.name, reason + did_you_mean(key.name, known))


def _corrections(recipe: Recipe, observations: Observations | None, graph: Graph) -> Corrections:
    means: dict[str, np.ndarray] = {}
    if recipe.repairs.bias_correction and observations is not None:
        means = {**observations.means, **smoothed_means(graph, observations.means)}
    return Corrections(means, recipe.repairs.weight_correction)


def _identifier(name: str) -> str:
    """A name of Python for an input."""
    word = re.sub(r"\W", "_", name)
    return word if word.isidentifier() else "batch"
