"""Fold batch norm, bias, scale and shift that follow a convolution or MatMul into its weights.

What is left is the op and at most one BiasAdd, which bears the name of the last node folded.
"""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.affine import (
    COMPUTE,
    Affine,
    affine_of,
    is_nhwc,
    output_channels,
    rank_of,
    scaled_weight,
)
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    data_inputs,
    make_const,
    make_node,
    with_inputs,
)


def fold_affine(net: Net) -> Net:
    changes: dict[str, NodeDef] = {}
    gone: set[str] = set()
    name_for = Namer(net.nodes)
    for name in net.order:
        node = net.nodes[name]
        if node.op not in COMPUTE or name in net.in_loop or not is_nhwc(node):
            continue
        weight = net.constant(data_inputs(node)[1])
        if weight is None or weight.dtype != np.float32:
            continue
        channels = output_channels(node, weight)
        chain, folded = _chain(net, node, channels)
        if not chain or (len(chain) == 1 and net.nodes[chain[0]].op == "BiasAdd"):
            continue
        if folded.scales:
            const = make_const(
                name_for(f"{name}/weight"), scaled_weight(node, weight, folded.scale)
            )
            changes[const.name] = const
            sources = [data_inputs(node)[0], const.name]
            changes[name] = with_inputs(node, [*sources, *_controls(node)])
        bias = make_const(name_for(f"{name}/bias"), folded.shift.astype(np.float32))
        changes[bias.name] = bias
        last = chain[-1]
        changes[last] = make_node("BiasAdd", last, [name, bias.name], T=tf.float32)
        gone.update(chain[:-1])
    return net.changed(changes, gone).pruned()


def _chain(net: Net, node: NodeDef, channels: int) -> tuple[list[str], Affine]:
    """The nodes behind `node` that are one scale and shift per channel, and what they come to."""
    total = Affine.identity(channels)
    chain: list[str] = []
    current = node.name
    while (user := net.only_user(current)) is not None:
        step = affine_of(net, user, current, channels, rank_of(node))
        if step is None:
            break
        total = total.then(step)
        chain.append(user.name)
        current = user.name
    return chain, total


def _controls(node: NodeDef) -> list[str]:
    return [name for name in node.input if name.startswith("^")]
