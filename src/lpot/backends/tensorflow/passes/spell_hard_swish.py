"""Write the hard swish behind a convolution in the one way that TensorFlow fuses with it.

FP32 convolutions then do it in their own kernel: five passes over the tensor become none.
"""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.activations import HARD_SWISH, match_activation
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import Namer, data_inputs, make_const, make_node

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


# -- Write Erfc as Erf, which ONNX has; as 1 + Erf(x) for -x, so that runtimes know their GELU.


def spell_erfc(net: Net) -> Net:
    name_for = Namer(net.nodes)
    made: dict[str, NodeDef] = {}

    def put(node: NodeDef) -> str:
        made[node.name] = node
        return str(node.name)

    for name, node in net.nodes.items():
        if node.op != "Erfc":
            continue
        (source,) = data_inputs(node)
        kind = tf.as_dtype(node.attr["T"].type)
        one = put(make_const(name_for(f"{name}/one"), np.ones((), kind.as_numpy_dtype)))
        turned = _negated(net, source)
        if turned is None:
            inner = source
        elif len(turned) == 1:
            inner = turned[0]
        else:
            inner = put(make_node("Mul", name_for(f"{name}/scaled"), turned, T=kind))
        erf = put(make_node("Erf", name_for(f"{name}/erf"), [inner], T=kind))
        op = "Sub" if turned is None else "AddV2"
        put(make_node(op, name, [one, erf], T=kind))
    return net.changed(made).pruned() if made else net


def _negated(net: Net, tensor: str) -> tuple[str, ...] | None:
    """The tensor, or its two factors, of which the one given is the negative."""
    node = net.producer(tensor)
    if node is None:
        return None
    if node.op == "Neg":
        return (data_inputs(node)[0],)
    if node.op == "Mul":
        factors = data_inputs(node)
        for at, factor in enumerate(factors):
            maker = net.producer(factor)
            if maker is not None and maker.op == "Neg":
                return (data_inputs(maker)[0], factors[1 - at])
    return None
