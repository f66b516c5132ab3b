"""May a fused sum overwrite what it adds? The kernel writes its result over the summand."""

from __future__ import annotations

from collections.abc import Iterator

from lpot.backends.tensorflow.prepare import Prepared
from lpot.backends.tensorflow.runtime import NodeDef
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import VIEWS, Layer
from lpot.backends.tensorflow.structure.nodes import data_inputs, node_name

# Their output may lie where their input lies.
SHARING = (*VIEWS, "Identity", "Bitcast", "StopGradient", "Snapshot")


def can_sum(prepared: Prepared, layer: Layer) -> bool:
    """True when everyone else who reads the addend has done so before this layer can run."""
    residual = layer.residual
    assert residual is not None
    net, addend = prepared.net, residual.addend
    if node_name(addend) in net.keep or layer.x == addend or ":" in addend:
        return False
    if _shares_memory(prepared, addend):
        return False
    before = net.ancestors(prepared.inputs_of(layer))
    others = {user.name for user in net.users.get(addend, ()) if user.name != residual.add}
    # A layer with a Pad folded in reads what stands before the Pad, and when it runs itself.
    others |= {one.node for one in prepared.layers.values() if one.x == addend}
    return all(name in before and not _shares_memory(prepared, name) for name in others)


def _shares_memory(prepared: Prepared, name: str) -> bool:
    follower = prepared.followers.get(name)
    return follower is not None and follower.is_view


def check_writers(net: Net) -> None:
    """Our own invariant, on the graph that runs: nobody sees a buffer after a sum has written it.

    A reader must be done before the sum starts: what the sum waits for, and nothing else.
    """
    for node in net.nodes.values():
        if not sums(node):
            continue
        before = net.ancestors(data_inputs(node))
        for name in _sharing(net, node_name(summand(node))):
            assert name not in net.keep, f"{node.name} would overwrite the output {name}"
            late = [one.name for one in net.users.get(name, ()) if one.name not in before]
            late = [one for one in late if one != node.name]
            assert not late, f"{node.name} would overwrite {name} before {late[0]} has read it"


def sums(node: NodeDef) -> bool:
    """Is it an INT8 op that adds in place?"""
    return node.op.startswith("_FusedQuantized") and b"Sum" in node.attr["fused_ops"].list.s


def summand(node: NodeDef) -> str:
    return data_inputs(node)[3]  # behind input, filter and bias


def _sharing(net: Net, name: str) -> Iterator[str]:
    """The nodes whose output lies in the same memory, as far as they come before or beside."""
    node = net.nodes[name]
    above = [node]
    while node.op in SHARING or sums(node):
        node = net.nodes[node_name(summand(node) if sums(node) else data_inputs(node)[0])]
        above.append(node)
    waiting = [one.name for one in above]
    seen: set[str] = set()
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            yield current
            waiting += [one.name for one in net.users.get(current, ()) if one.op in SHARING]
