"""Write the hard swish behind a convolution in the one way that TensorFlow fuses with it.

FP32 convolutions then do it in their own kernel: five passes over the tensor become none.
"""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.activations import HARD_SWISH, match_activation
from lpot.backends.tensorflow.graph import Net
from lpot.backends.tensorflow.nodes import Namer, data_inputs, make_const, make_node
from lpot.backends.tensorflow.runtime import NodeDef, tf

CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative")


def spell_hard_swish(net: Net) -> Net:
    name_for = Namer(net.nodes)
    changes: dict[str, NodeDef] = {}
    for name, node in net.nodes.items():
        if node.op != "BiasAdd" or name in net.in_loop or name in net.in_branch:
            continue
        maker = net.producer(data_inputs(node)[0])
        if maker is None or maker.op not in CONVOLUTIONS:
            continue
        found = match_activation(net, name, HARD_SWISH)
        if found is not None:
            made = _nodes(name, found[1], name_for)
            changes.update((one.name, one) for one in made)
    return net.changed(changes).pruned() if changes else net


def _nodes(x: str, last: str, name_for: Namer) -> list[NodeDef]:
    """TensorFlow sorts the operands of Add and Mul by name and knows the pattern in one order only,
    with `x` in front: the names here begin with it, so that they come behind it.
    """
    three = make_const(name_for(f"{x}/hard_swish/3"), np.float32(3.0))
    sixth = make_const(name_for(f"{x}/hard_swish/sixth"), np.float32(1.0 / 6.0))
    kind = {"T": tf.float32}
    add = make_node("AddV2", name_for(f"{x}/hard_swish/add"), [x, three.name], **kind)
    cut = make_node("Relu6", name_for(f"{x}/hard_swish/relu6"), [add.name], **kind)
    gate = make_node("Mul", name_for(f"{x}/hard_swish/gate"), [cut.name, sixth.name], **kind)
    return [three, sixth, add, cut, gate, make_node("Mul", last, [x, gate.name], **kind)]
