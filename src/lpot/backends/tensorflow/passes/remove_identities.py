"""Let readers of a node that changes nothing read what stands before it."""

from __future__ import annotations

from lpot.backends.tensorflow.runtime import NodeDef
from lpot.backends.tensorflow.structure.graph import CONTROL_FLOW, Net
from lpot.backends.tensorflow.structure.nodes import data_inputs, has_control

TRANSPARENT = ("Identity", "StopGradient", "PreventGradient", "CheckNumerics", "Snapshot")


def remove_identities(net: Net) -> Net:
    """Nodes with a name of their own to keep stay; only their readers go past them."""
    renamed: dict[str, str] = {}
    for name in net.order:
        node = net.nodes[name]
        if has_control(node) or name in net.in_loop or not _changes_nothing(net, node):
            continue
        source = data_inputs(node)[0]
        before = net.producer(source)
        # Behind a Switch the Identity carries which branch is alive.
        if before is None or before.op in CONTROL_FLOW:
            continue
        renamed[name] = renamed.get(source, source)
    return net.rewired(renamed).pruned()


def _changes_nothing(net: Net, node: NodeDef) -> bool:
    if node.op == "Transpose":
        order = net.constant(data_inputs(node)[1])
        return order is not None and list(order) == sorted(order)
    return node.op in TRANSPARENT
