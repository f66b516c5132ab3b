"""Sessions of big graphs, which TensorFlow optimises without seeing their weights.

A session that optimises its graph holds ten copies of the weights while it opens. Here the graph is
optimised first, with its big constants left open, and then runs in a session that leaves it as
it is: the same ops, with half of the copies.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from dataclasses import replace
from typing import Any

from tensorflow.core.protobuf import meta_graph_pb2

from lpot.backends.tensorflow.passes.drop_controls import drop_controls
from lpot.backends.tensorflow.passes.fold_constants import fold_constants
from lpot.backends.tensorflow.passes.remove_identities import remove_identities
from lpot.backends.tensorflow.quick import is_lent
from lpot.backends.tensorflow.run import HEAVY, fill, first_line, session_config
from lpot.backends.tensorflow.runtime import NodeDef, tf, v1
from lpot.backends.tensorflow.structure.affine import (
    affine_of,
    is_nhwc,
    output_channels,
    scaled_weight,
)
from lpot.backends.tensorflow.structure.graph import ITERATOR, Net, lightened
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    data_inputs,
    has_control,
    make_const,
    node_name,
)
from lpot.core.cpu import give_back

try:
    from tensorflow.python.grappler import tf_optimizer
except ImportError:  # private: without it sessions open as TensorFlow makes them
    tf_optimizer = None

logger = logging.getLogger(__name__)

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"  # fusions are for nodes that have their place
# Ops that are optimised in the same way whatever their weights are.
TAKERS = frozenset(
    {
        *("Conv2D", "DepthwiseConv2dNative"),
        *("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "GatherV2"),
        *("_QuantizedMatMul", "_FusedQuantizedConv2D", "_FusedQuantizedDepthwiseConv2D"),
    }
)
FACTORS = ("Mul", "RealDiv", "Div")  # beside a Conv2D they go into its weight


def slim_session(net: Net) -> SlimSession | None:
    """None for a graph that is small, reads its data itself, or is fed in its midst."""
    if tf_optimizer is None:
        return None
    if sum(node.ByteSize() for node in net.nodes.values()) <= HEAVY:
        return None
    if any(node.op == ITERATOR for node in net.nodes.values()):
        return None
    if any(net.nodes[node_name(name)].op != "Placeholder" for name in net.inputs):
        return None
    return SlimSession(net)


class SlimSession:
    """Opened by its first run. It knows the inputs and outputs of the net, and no other tensor."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self._session: v1.Session | None = None

    @property
    def is_open(self) -> bool:
        return self._session is not None

    def run(self, fetches: Any, feeds: Any = None, **options: Any) -> Any:
        if self._session is not None:
            return self._session.run(fetches, feeds, **options)
        self._session = _opened(self._net)
        found = self._session.run(fetches, feeds, **options)
        give_back()  # the first run copies the weights to where they stay
        return found

    def close(self) -> None:
        """Free the session; the next run opens another."""
        if self._session is not None:
            self._session.close()
            self._session = None


def _opened(net: Net) -> v1.Session:
    graph = tf.Graph()
    fill(graph, optimised(net))
    give_back()
    config = session_config(quick=True)
    config.experimental.disable_output_partition_graphs = True
    return v1.Session(graph=graph, config=config)


def optimised(net: Net) -> Net:
    """What a session would make of the graph before it runs it."""
    for step in (drop_controls, remove_identities, fold_constants, _with_scaled_weights):
        net = step(net)
    lent = _lent(net)
    light = lightened(net.header, net.nodes.values(), lent)
    for node in light.node:
        node.device = CPU
        if node.name in lent:
            # Shapes of what is fed count as unknown, and fusions need them.
            node.op = "ImmutableConst"
            node.attr["memory_region_name"].s = node.name.encode()
    asked = meta_graph_pb2.MetaGraphDef(graph_def=light)
    ends = dict.fromkeys(map(node_name, (*net.outputs, *net.inputs, *sorted(net.keep))))
    asked.collection_def["train_op"].node_list.value.extend(ends)
    try:
        found = tf_optimizer.OptimizeGraph(session_config(), asked)
    except (tf.errors.OpError, ValueError) as error:
        logger.info("TensorFlow can't optimise the graph: %s", first_line(error))
        return net
    nodes = {node.name: net.nodes[node.name] if node.name in lent else node for node in found.node}
    header = type(net.header)(library=found.library, versions=found.versions)
    return replace(net, nodes=nodes, header=header)


def _lent(net: Net) -> Set[str]:
    """Constants that need not be known to optimise the graph."""
    return {
        name
        for name, node in net.nodes.items()
        if is_lent(node)
        and name not in net.pinned
        and all(_takes(net, user) for user in net.users.get(name, ()))
    }


def _takes(net: Net, node: NodeDef) -> bool:
    if node.op not in TAKERS or node.name in net.in_loop:
        return False
    if node.op != "Conv2D":
        return True
    before, behind = net.producer(data_inputs(node)[0]), net.only_user(node.name)
    return not any(item is not None and item.op in FACTORS for item in (before, behind))


def _with_scaled_weights(net: Net) -> Net:
    """A factor for each channel right behind a convolution goes into its weight."""
    changes: dict[str, NodeDef] = {}
    gone: set[str] = set()
    name_for = Namer(net.nodes)
    for name, node in net.nodes.items():
        factor = net.only_user(name) if node.op == "Conv2D" and is_nhwc(node) else None
        weight = net.constant(data_inputs(node)[1]) if factor is not None else None
        if factor is None or weight is None or factor.op != "Mul" or has_control(node):
            continue
        affine = affine_of(net, factor, name, output_channels(node, weight), 4)
        if affine is None or weight.dtype != "float32" or name in net.in_loop:
            continue
        const = make_const(name_for(f"{name}/scaled"), scaled_weight(node, weight, affine.scale))
        fresh = NodeDef()
        fresh.CopyFrom(node)
        fresh.name, fresh.input[1] = factor.name, const.name
        changes |= {const.name: const, factor.name: fresh}
        gone.add(name)
    return net.changed(changes, gone).pruned()
