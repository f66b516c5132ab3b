"""Run compute ops in bfloat16 between casts; neighbours in bfloat16 need no cast between them."""

from __future__ import annotations

from collections.abc import Iterable

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import CONV_ACTIVATIONS, Layer
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    data_inputs,
    make_const,
    make_node,
    with_inputs,
)


def cast_bfloat16(net: Net, layers: Iterable[Layer]) -> Net:
    """Each layer with its bias and Relu; its result is there in float32 under the old name."""
    cast = _Cast(net)
    chosen = list(layers)
    for layer in chosen:
        cast.reserve(layer)
    for layer in chosen:
        cast.add(layer)
    return net.changed(cast.nodes).pruned()


class _Cast:
    def __init__(self, net: Net) -> None:
        self.net = net
        self.name_for = Namer(net.nodes)
        self.nodes: dict[str, NodeDef] = {}
        self.halves: dict[str, str] = {}  # float tensor → its bfloat16 twin

    def reserve(self, layer: Layer) -> None:
        self.halves[self._last(layer)] = self.name_for(f"{layer.node}/bfloat16")

    def _last(self, layer: Layer) -> str:
        """Where the layer ends in bfloat16: an activation other than Relu stays in float32."""
        if layer.activation in CONV_ACTIVATIONS:
            return layer.out
        return layer.node if layer.bias is None else self.net.users[layer.node][0].name

    def half(self, tensor: str) -> str:
        if tensor not in self.halves:
            name = self.name_for(f"{tensor.replace(':', '_')}/bfloat16")
            value = self.net.constant(tensor)
            if value is not None:
                made = make_const(name, value.astype(tf.bfloat16.as_numpy_dtype))
            else:
                made = make_node("Cast", name, [tensor], SrcT=tf.float32, DstT=tf.bfloat16)
            self.nodes[name] = made
            self.halves[tensor] = name
        return self.halves[tensor]

    def add(self, layer: Layer) -> None:
        last = self._last(layer)
        chain = [layer.node]
        while chain[-1] != last:
            chain.append(self.net.users[chain[-1]][0].name)
        before = ""
        for name in chain:
            node = self.net.nodes[name]
            inputs = data_inputs(node)
            # The Pad of a layer that could fold it stays outside: the op reads what it always read.
            sources = [self.half(n) for n in inputs] if name == layer.node else [before]
            sources += [self.half(n) for n in inputs[1:]] if name != layer.node else []
            made = with_inputs(node, sources)
            made.name = self.halves[last] if name == last else self.name_for(f"{name}/bfloat16")
            made.attr["T"].type = tf.bfloat16.as_datatype_enum
            self.nodes[made.name] = made
            before = made.name
        back = make_node("Cast", last, [before], SrcT=tf.bfloat16, DstT=tf.float32)
        self.nodes[last] = back
