"""Keep one of nodes that compute the same: a session does so too, and plans must see what it sees.

Two fused sums would otherwise be given one buffer to write to.
"""

from __future__ import annotations

import hashlib

from tensorflow.python.framework import op_def_registry

from lpot.backends.tensorflow.runtime import NodeDef
from lpot.backends.tensorflow.structure.graph import CONTROL_FLOW, Net
from lpot.backends.tensorflow.structure.nodes import node_name, tensor_name

# What a node is called, where it runs and with whom does not change what it computes.
PLACES = ("_class", "_output_shapes")
Key = tuple[str, tuple[str, ...], bytes]


def merge_twins(net: Net) -> Net:
    """Nodes that must survive by name do; of several such the first is read instead of all."""
    stands = twins_of(net)
    changes = {
        name: fresh
        for name, node in net.nodes.items()
        if (fresh := _rewired(node, stands)) is not None
    }
    return net.changed(changes).pruned() if changes else net


def twins_of(net: Net) -> dict[str, str]:
    """Node → the other one that stands for it; constants are left out.

    Equal constants make equal nodes, but each op keeps its own weights.
    """
    groups: dict[Key, list[str]] = {}
    first: dict[str, str] = {}
    for name in net.order:
        node = net.nodes[name]
        if not _is_pure(node) or name in net.in_loop or name in net.in_branch:
            continue
        twins = groups.setdefault(_key(node, first), [])
        twins.append(name)
        first[name] = twins[0]
    found: dict[str, str] = {}
    for (op, *_), twins in groups.items():
        chosen = next((name for name in twins if name in net.keep), twins[0])
        if op != "Const":
            found.update((name, chosen) for name in twins if name != chosen)
    return found


def _is_pure(node: NodeDef) -> bool:
    if node.op in CONTROL_FLOW:
        return False
    definition = op_def_registry.get(node.op)
    if definition is None or definition.is_stateful or node.op.startswith("Placeholder"):
        return False
    return not any(value.HasField("func") for value in node.attr.values())


def _key(node: NodeDef, stands: dict[str, str]) -> Key:
    digest = hashlib.sha256(node.device.encode())
    for name in sorted(node.attr):
        if name not in PLACES:
            digest.update(name.encode())
            digest.update(node.attr[name].SerializeToString(deterministic=True))
    return node.op, tuple(_renamed(source, stands) for source in node.input), digest.digest()


def _renamed(source: str, stands: dict[str, str]) -> str:
    """The same output, or control edge, of the node that stands for this one."""
    plain = tensor_name(source)
    owner = node_name(plain)
    return plain.replace(owner, stands[owner], 1) if owner in stands else plain


def _rewired(node: NodeDef, stands: dict[str, str]) -> NodeDef | None:
    inputs = [_renamed(source, stands) for source in node.input]
    if inputs == [tensor_name(source) for source in node.input]:
        return None
    fresh = NodeDef()
    fresh.CopyFrom(node)
    fresh.input[:] = inputs
    return fresh
