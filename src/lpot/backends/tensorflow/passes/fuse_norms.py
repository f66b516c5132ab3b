"""Write layer normalization as one op, where TensorFlow has a dozen that pass over the data."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from lpot.backends.tensorflow.run import open_session
from lpot.backends.tensorflow.runtime import GraphDef, NodeDef, tf
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layer_norm import match_layer_norms
from lpot.backends.tensorflow.structure.nodes import Namer, make_const, make_node
from lpot.core.errors import UnsupportedModel

FUSED_NORM = "_MklLayerNorm"


def fuse_norms(net: Net) -> Net:
    if not has_fused_norm():
        return net
    changes: dict[str, NodeDef] = {}
    name_for = Namer(net.nodes)
    for norm in match_layer_norms(net):
        scale = make_const(name_for(f"{norm.out}/scale"), norm.scale.astype(np.float32))
        offset = make_const(name_for(f"{norm.out}/offset"), norm.offset.astype(np.float32))
        made = make_node(
            FUSED_NORM,
            norm.out,
            [norm.x, scale.name, offset.name],
            T=tf.float32,
            epsilon=norm.epsilon,
        )
        changes |= {node.name: node for node in (scale, offset, made)}
    return net.changed(changes).pruned() if changes else net


@lru_cache
def has_fused_norm() -> bool:
    """The op is TensorFlow's own, and no version promises it: where it is gone, norms stay."""
    graph_def = GraphDef()
    ones = np.ones(4, np.float32)
    graph_def.node.extend(
        [
            make_const("x", np.ones((2, 4), np.float32)),
            make_const("scale", ones),
            make_const("offset", ones),
            make_node(FUSED_NORM, "y", ["x", "scale", "offset"], T=tf.float32, epsilon=1e-3),
        ]
    )
    graph_def.versions.producer = tf.compat.v1.GRAPH_DEF_VERSION
    try:
        session = open_session(graph_def)
        with session:
            session.run("y:0")
    except (UnsupportedModel, tf.errors.OpError):
        return False
    return True
