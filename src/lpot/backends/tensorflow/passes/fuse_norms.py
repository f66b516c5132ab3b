"""Write layer normalization as one op, where TensorFlow has a dozen that pass over the data."""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.graph import Net
from lpot.backends.tensorflow.layer_norm import match_layer_norms
from lpot.backends.tensorflow.nodes import Namer, make_const, make_node
from lpot.backends.tensorflow.runtime import NodeDef, tf


def fuse_norms(net: Net) -> Net:
    changes: dict[str, NodeDef] = {}
    name_for = Namer(net.nodes)
    for norm in match_layer_norms(net):
        scale = make_const(name_for(f"{norm.out}/scale"), norm.scale.astype(np.float32))
        offset = make_const(name_for(f"{norm.out}/offset"), norm.offset.astype(np.float32))
        made = make_node(
            "_MklLayerNorm",
            norm.out,
            [norm.x, scale.name, offset.name],
            T=tf.float32,
            epsilon=norm.epsilon,
        )
        changes |= {node.name: node for node in (scale, offset, made)}
    return net.changed(changes).pruned() if changes else net
