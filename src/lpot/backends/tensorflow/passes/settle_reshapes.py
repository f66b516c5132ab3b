"""Give Reshapes a constant shape where all but one size is known: what computed it falls away."""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.graph import Net
from lpot.backends.tensorflow.nodes import Namer, data_inputs, has_control, make_const, with_inputs
from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.sizes import known_sizes

ROUNDS = 4  # each settled shape may make those behind it known


def settle_reshapes(net: Net) -> Net:
    for _ in range(ROUNDS):
        changes = _settled(net)
        if not changes:
            break
        net = net.changed(changes).pruned()
    return net


def _settled(net: Net) -> dict[str, NodeDef]:
    changes: dict[str, NodeDef] = {}
    name_for = Namer(net.nodes)
    for name in net.order:
        node = net.nodes[name]
        if node.op != "Reshape" or has_control(node) or name in net.in_loop:
            continue
        if net.is_constant(data_inputs(node)[1]):
            continue
        shape = known_sizes(net, data_inputs(node)[1]) or net.shape(name)
        # With a size of 0 among the known ones the unknown one could not be worked out.
        if shape is None or sum(size in (None, -1) for size in shape) > 1 or 0 in shape:
            continue
        sizes = np.array([-1 if size is None else size for size in shape], np.int32)
        const = make_const(name_for(f"{name}/settled"), sizes)
        changes[const.name] = const
        fresh = with_inputs(node, [node.input[0], const.name])
        fresh.attr["Tshape"].type = tf.int32.as_datatype_enum
        changes[name] = fresh
    return changes
