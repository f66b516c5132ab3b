"""Write Erfc as Erf, which ONNX has; as 1 + Erf(x) for -x, so that runtimes know their GELU."""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.graph import Net
from lpot.backends.tensorflow.nodes import Namer, data_inputs, make_const, make_node
from lpot.backends.tensorflow.runtime import NodeDef, tf


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
