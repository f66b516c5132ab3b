"""Time of every op as OpenVINO's own counters have it, under the names of the model given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lpot.backends.onnx.abilities import COMPUTE
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.openvino.session import Session
from lpot.core.backend import Observations
from lpot.core.batch import Inputs
from lpot.core.inputs import by_name
from lpot.core.recipe import OpKey, Recipe
from lpot.core.results.profile import OpTime, Role, quickest

if TYPE_CHECKING:
    from lpot.backends.openvino import OpenvinoBackend

WARMUP, RUNS = 3, 15
# Layers that only change the form of values.
MOVES = ("Reorder", "Convert", "FakeQuantize")
PRECISIONS: Mapping[str, str] = {"u8": "int8", "i8": "int8", "bf16": "bf16", "f16": "fp16"}
_OWN = re.compile(r"/(WithoutBiases|reshape|fq_.*)$")  # what OpenVINO adds to the name of a node


def profile(opened: Session, model: OnnxModel, inputs: Inputs, runs: int) -> tuple[OpTime, ...]:
    """The shortest time of each op over so many runs of a session that counts them."""
    feeds = by_name(model.inputs, inputs)
    layers = {layer.friendly_name: layer for layer in opened.compiled.get_runtime_model().get_ops()}
    names = {node.name: node.op_type for node in model.graph.nodes}
    turns = []
    for _ in range(WARMUP + runs):
        opened.run(None, feeds)
        counted = opened.request.get_profiling_info()
        turns.append([_op(one, layers.get(one.node_name), names) for one in counted if _ran(one)])
    return quickest(turns[WARMUP:])


def _ran(one: Any) -> bool:
    return bool(one.real_time.total_seconds() > 0)


def _op(one: Any, layer: Any, names: Mapping[str, str]) -> OpTime:
    info = {} if layer is None else layer.rt_info
    precision = info["runtimePrecision"].astype(str) if "runtimePrecision" in info else "f32"
    name = next((own for own in _originals(info) if names.get(own) in COMPUTE), "")
    name = name or next((own for own in _originals(info) if own in names), one.node_name)
    moves = one.node_type in MOVES or names.get(name) in ("QuantizeLinear", "DequantizeLinear")
    role: Role = "convert" if moves else "op"
    word = PRECISIONS.get(precision, "fp32")
    return OpTime(name, one.node_type, one.real_time.total_seconds(), word, role)


def _originals(info: Any) -> Iterator[str]:
    """The names of the nodes that a layer was made of."""
    if "originalLayersNames" in info:
        for name in info["originalLayersNames"].astype(str).split(","):
            yield _OWN.sub("", name)


def gains(
    backend: OpenvinoBackend, model: OnnxModel, recipe: Recipe, observations: Observations
) -> dict[OpKey, float]:
    """Seconds a batch that each compute op saves, with all that follows it up to the next one.

    A runtime fuses other ops with a float product than with an INT8 one: an activation that is free
    behind the one, and not behind the other, counts for the product.
    """
    if not observations.probe:
        return {}
    floats = recipe.with_float(recipe.low_ops)
    slow, quick = (
        _by_compute(backend, backend.build(model, tried, observations), observations)
        for tried in (floats, recipe)
    )
    return {
        key: slow[key.name] - quick[key.name]
        for key in recipe.low_ops
        if key.name in slow and key.name in quick
    }


def _by_compute(
    backend: OpenvinoBackend, model: OnnxModel, observations: Observations
) -> dict[str, float]:
    """Seconds by compute op: those of all other ops go to the last one before them."""
    owner = _owners(model.graph)
    found: dict[str, float] = {}
    for op in backend.profile(model, observations.probe[0], RUNS):
        name = owner.get(op.name, op.name)
        found[name] = found.get(name, 0.0) + op.seconds
    compute = (node.name for node in model.graph.nodes if node.op_type in COMPUTE)
    return {name: found.get(name, 0.0) for name in compute}


def _owners(graph: Graph) -> dict[str, str]:
    """Node → the compute op that it belongs to: itself, or the nearest one before it."""
    found: dict[str, str] = {}
    for node in graph.nodes:  # in topological order
        if node.op_type in COMPUTE:
            found[node.name] = node.name
            continue
        before = (graph.producers.get(name) for name in node.input)
        owners = [found[one.name] for one in before if one is not None and one.name in found]
        if owners:
            found[node.name] = owners[-1]
    return found
