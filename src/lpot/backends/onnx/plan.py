"""From a recipe to what really happens: which nodes run in INT8 and which tensors are quantized.

Fallback is per edge: a tensor is quantized only if an INT8 op reads it, or if its INT8 producer
has no way to give floats. Ops that pay only between INT8 neighbours drop out where they have none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from onnx import NodeProto

from lpot.backends.onnx.abilities import (
    CLAMPING,
    COMPUTE,
    FOLLOWERS,
    MOVING,
    RECURRENT,
    TABLES,
    Kernels,
)
from lpot.backends.onnx.graph import DERIVED, Graph, attribute
from lpot.core.recipe import OpConfig, OpKey, Recipe, TensorConfig

SAME_SCALE = MOVING
FOLLOW = OpConfig(TensorConfig("uint8", "asym", "per_tensor", "minmax", 8))


@dataclass(frozen=True, eq=False)
class Plan:
    """`low`: node → config, static; `dynamic`: node → config; `tensors`: tensor → algorithm."""

    low: Mapping[str, OpConfig]
    dynamic: Mapping[str, OpConfig]
    clamps: Mapping[str, str]  # node that the op before it does, by rounding or on its sums → that
    tensors: Mapping[str, str]
    roots: Mapping[str, str]  # tensor → the tensor whose scale it shares
    # Mul → its Sigmoid, done as one op on floats between INT8, and what they read
    silus: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def precision(self, key: OpKey) -> str:
        if key.name in self.low or key.name in self.dynamic or key.name in self.clamps:
            return "int8"
        return "fp32"


def plan(
    graph: Graph,
    recipe: Recipe,
    minmax: Collection[str] = (),
    kernels: Kernels = Kernels(),  # noqa: B008 - a frozen value
) -> Plan:
    """What the recipe comes to. Of the tensors in `minmax` nothing but the extremes are known."""
    here = {node.name for node in graph.nodes}  # a recipe speaks of the branches of Ifs, too
    configs = {
        key.name: config
        for key, config in recipe.ops.items()
        if not config.is_float and key.name in here
    }
    dynamic = {name: config for name, config in configs.items() if config.mode == "dynamic"}
    low = {name: config for name, config in configs.items() if config.mode == "static"}
    low |= {node.name: FOLLOW for node in graph.nodes if _is_derived_follower(node)}
    clamps = _clamps(graph, low) | _activations(graph, low, kernels)
    _drop_lonely(graph, low, clamps)
    roots = _roots(graph, low)
    silus = _silus(graph, low) if kernels.silu else {}
    tensors = _tensors(graph, low, clamps, roots, silus, kernels)
    if moved := _moved_into_subgraphs(graph, low, tensors):
        low |= moved
        roots = _roots(graph, low)
        tensors = _tensors(graph, low, clamps, roots, silus, kernels)
    tensors |= {name: "minmax" for name in minmax if name in tensors}
    # The runtime finds the two ops among floats by itself, and not behind a DequantizeLinear.
    silus = {name: pair for name, pair in silus.items() if pair[1] in tensors}
    return Plan(low, dynamic, clamps, tensors, roots, silus)


def _moved_into_subgraphs(
    graph: Graph, low: Mapping[str, OpConfig], tensors: Mapping[str, str]
) -> dict[str, OpConfig]:
    """Ops that only move what an INT8 op made, to where a subgraph reads it: they move INT8.

    The values are the same. With floats, the runtime would carry the DequantizeLinear before such
    an op behind it, to all who read, and end the process over a reader that is a subgraph.
    """
    wanted = set(graph.read_inside)
    carriers: list[NodeProto] = []
    for node in reversed(graph.nodes) if wanted else ():
        if node.op_type in MOVING and not wanted.isdisjoint(node.output):
            wanted.add(node.input[0])
            carriers.append(node)
    made = {name for node in graph.nodes if node.name in low for name in node.output}
    carried = made.intersection(tensors) if carriers else set()
    found: dict[str, OpConfig] = {}
    for node in reversed(carriers):
        if node.input[0] in carried:
            carried.add(node.output[0])
            found |= {} if node.name in low else {node.name: FOLLOW}
    return found


def _is_derived_follower(node: NodeProto) -> bool:
    return node.doc_string == DERIVED and node.op_type in FOLLOWERS


def active_inputs(graph: Graph, node: NodeProto) -> list[str]:
    """The inputs that carry activations: one for ops with weights or shapes, all for the others."""
    if node.op_type in COMPUTE or node.op_type in MOVING or node.op_type in CLAMPING:
        return [node.input[0]]
    return [name for name in node.input if name and not graph.is_constant(name)]


def is_depthwise(graph: Graph, node: NodeProto) -> bool:
    if node.op_type != "Conv":
        return False
    group = int(attribute(node, "group", 1) or 1)
    return bool(group > 1 and graph.weights[node.input[1]].shape[1] == 1)


def _clamps(graph: Graph, low: dict[str, OpConfig]) -> dict[str, str]:
    """Relu and Clip that the quantization behind them does for free."""
    found = {}
    for node in graph.nodes:
        if node.op_type not in CLAMPING:
            continue
        before = graph.producers.get(node.input[0])
        if before is None or before.name not in low or node.name not in low:
            continue
        alone = len(graph.consumers[node.input[0]]) == 1 and node.input[0] not in graph.outputs
        if alone and before.op_type not in CLAMPING and before.op_type not in MOVING:
            found[node.name] = before.name
    return found


def _activations(graph: Graph, low: Mapping[str, OpConfig], kernels: Kernels) -> dict[str, str]:
    """Activations, and the two ops of a SiLU, that the kernel of the product before them does."""
    found: dict[str, str] = {}
    for node in graph.nodes if kernels.activations else ():
        if node.op_type not in COMPUTE or node.name not in low or node.output[0] in graph.outputs:
            continue
        users = graph.consumers.get(node.output[0], [])
        if not all(user.name in low for user in users):
            continue
        if len(users) == 2 and (pair := _silu(graph, users[-1])) and pair is users[0]:
            found |= {pair.name: node.name, users[-1].name: node.name}
        elif len(users) == 1 and users[0].op_type in kernels.activations:
            found[users[0].name] = node.name
    return found


def _silu(graph: Graph, node: NodeProto) -> NodeProto | None:
    """The Sigmoid of a product with what it reads, if nobody else reads that."""
    for name in node.input if node.op_type == "Mul" else ():
        inner = graph.producers.get(name)
        if inner is not None and inner.op_type == "Sigmoid" and name not in graph.outputs:
            same = set(node.input) == {name, inner.input[0]}
            if same and len(graph.consumers[name]) == 1:
                return inner
    return None


def _silus(graph: Graph, low: Mapping[str, OpConfig]) -> dict[str, tuple[str, str]]:
    """Both ops of each in INT8, or neither."""
    return {
        node.name: (inner.name, inner.input[0])
        for node in graph.nodes
        if (inner := _silu(graph, node)) and (node.name in low) == (inner.name in low)
    }


def _drop_lonely(graph: Graph, low: dict[str, OpConfig], clamps: dict[str, str]) -> None:
    """Take out, until nothing changes, the followers that lack an INT8 neighbour on either side."""
    nodes = {node.name: node for node in graph.nodes}
    needy = dict.fromkeys(
        name
        for name in low
        if nodes[name].op_type not in COMPUTE or is_depthwise(graph, nodes[name])
    )
    swallowed: dict[str, list[str]] = {}
    for clamp, base in clamps.items():
        swallowed.setdefault(base, []).append(clamp)
    waiting = list(reversed(needy))
    while waiting:
        name = waiting.pop()
        if name not in low or name in clamps or _has_company(graph, nodes[name], low, clamps):
            continue
        del low[name]
        gone = [nodes[name]]
        for clamp in swallowed.pop(name, ()):
            del clamps[clamp]
            low.pop(clamp, None)
            gone.append(nodes[clamp])
        others = [other.name for node in gone for other in _around(graph, node)]
        others += [clamps[other] for other in others if other in clamps]
        waiting += (name for name in others if name in needy)


def _around(graph: Graph, node: NodeProto) -> Iterator[NodeProto]:
    """Ops whose company it was: those that feed it and that it feeds, behind a clamp as well."""
    for name in node.input:
        before = graph.producers.get(name)
        if before is not None:
            yield before
            if before.op_type in CLAMPING and before.input[0] in graph.producers:
                yield graph.producers[before.input[0]]
        if node.op_type in COMPUTE:  # on whose account the others found the tensor quantized
            yield from graph.consumers.get(name, ())
    for name in node.output:
        yield from graph.consumers.get(name, ())


def _has_company(
    graph: Graph, node: NodeProto, low: Mapping[str, OpConfig], clamps: Mapping[str, str]
) -> bool:
    if not all(_arrives_low(graph, name, low) for name in active_inputs(graph, node)):
        return False
    after = output_of(graph, node, clamps)
    return any(
        user.name in low and after in active_inputs(graph, user)
        for user in graph.consumers.get(after, ())
    )


def _arrives_low(graph: Graph, name: str, low: Mapping[str, OpConfig]) -> bool:
    """Made by an INT8 op, or quantized anyway because an op that pays for itself reads it."""
    before = graph.producers.get(name)
    if before is not None and before.name in low:
        return True
    return any(
        user.name in low and user.op_type in COMPUTE and user.input[0] == name
        for user in graph.consumers.get(name, ())
    )


def output_of(graph: Graph, node: NodeProto, clamps: Mapping[str, str]) -> str:
    """The tensor an op hands on, behind the clamp it swallowed."""
    name = str(node.output[0])
    users = graph.consumers.get(name, ())
    if users and all(clamps.get(user.name) == node.name for user in users):
        return str(users[-1].output[0])  # of a SiLU's two ops the second
    return name


def _roots(graph: Graph, low: Mapping[str, OpConfig]) -> dict[str, str]:
    roots: dict[str, str] = {}
    for node in graph.nodes:
        if node.name in low and node.op_type in SAME_SCALE:
            source = node.input[0]
            roots[node.output[0]] = roots.get(source, source)
    return roots


def _tensors(
    graph: Graph,
    low: Mapping[str, OpConfig],
    clamps: Mapping[str, str],
    roots: Mapping[str, str],
    silus: Mapping[str, tuple[str, str]],
    kernels: Kernels,
) -> dict[str, str]:
    """Every tensor to quantize, with the algorithm of the first INT8 op that reads it."""
    found: dict[str, str] = {}
    inner = {name for name, _ in silus.values()}
    for node in graph.nodes:
        config = low.get(node.name)
        if config is None or node.name in clamps or node.name in silus:
            continue
        for name in active_inputs(graph, node):
            found.setdefault(name, config.activation.algorithm or "minmax")
    for node in graph.nodes:
        config = low.get(node.name)
        if config is None or node.name in clamps or node.name in inner:
            continue
        if node.op_type in kernels.float_output:
            continue
        found.setdefault(output_of(graph, node, clamps), config.activation.algorithm or "minmax")
    for name, root in roots.items():
        if name in found and root in found:
            found[name] = found[root]
    return found


def observed_tensors(graph: Graph, capable: Mapping[str, str]) -> list[str]:
    """Every tensor that some recipe could quantize. `capable`: node name → kind."""
    names: dict[str, None] = {}
    for node in graph.nodes:
        if node.op_type in (*TABLES, *RECURRENT):
            continue
        if node.name in capable or _is_derived_follower(node):
            for name in active_inputs(graph, node):
                names.setdefault(name)
            names.setdefault(node.output[0])
    return list(names)
