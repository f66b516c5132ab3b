"""Turn NCHW to NHWC, the one layout that has INT8 kernels.

Every op of a layout is given its input turned; ops that mind no layout pass what is turned on, so
that transpositions are left at the ends alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.affine import BATCH_NORMS, is_nhwc
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import ORIGIN
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    data_inputs,
    has_control,
    make_const,
    make_node,
    tensor_name,
    with_inputs,
)

TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
AXES = {0: 0, 1: 3, 2: 1, 3: 2, -4: 0, -3: 3, -2: 1, -1: 2}  # where an axis of NCHW lies in NHWC
LAID_OUT = ("Conv2D", "DepthwiseConv2dNative", "MaxPool", "AvgPool", "BiasAdd", *BATCH_NORMS)
UNARY = (
    *("Relu", "Relu6", "Elu", "Selu", "LeakyRelu", "Sigmoid", "Tanh", "Softplus", "Identity"),
    *("Neg", "Abs", "Square", "Sqrt", "Rsqrt", "Exp", "Log", "Erf"),
)
BINARY = ("Add", "AddV2", "AddN", "Sub", "Mul", "RealDiv", "Maximum", "Minimum")
PADS = ("Pad", "PadV2", "MirrorPad")
SIZES = ("strides", "ksize", "dilations")


def turn_nhwc(net: Net) -> Net:
    if all(is_nhwc(node) for node in net.nodes.values() if node.op in LAID_OUT):
        return net
    return _Turning(net).turned()


class _Turning:
    """`back` maps a tensor of the old graph to the node that gives it turned."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.fresh = Namer(net.nodes)
        self.nodes: dict[str, NodeDef] = {}
        self.turned_to: dict[str, str] = {}

    def turned(self) -> Net:
        for name in self.net.order:
            node = self.net.nodes[name]
            fresh = None if self._stays(node) else self._turn(node)
            if fresh is None:
                # It reads what it always read: turned back where that is gone.
                self.nodes[name] = with_inputs(node, [self._plain(n) for n in node.input])
        return self.net.changed(self.nodes).pruned()

    def _stays(self, node: NodeDef) -> bool:
        name = node.name
        return has_control(node) or name in self.net.in_loop or name in self.net.in_branch

    def _turn(self, node: NodeDef) -> NodeDef | None:
        """The node in NHWC, entered under the old one's name or beside it."""
        inputs = data_inputs(node)
        if node.op in LAID_OUT and not is_nhwc(node) and self._is_image(inputs[0]):
            return self._enter(node, self._in_nhwc(node, inputs))
        if node.op == "Transpose":
            return self._transpose(node, inputs)
        if not inputs or (inputs[0] not in self.turned_to and node.op not in BINARY):
            return None
        if node.op in UNARY:
            return self._enter(node, with_inputs(node, [self.turned_to[inputs[0]]]))
        if node.op in BINARY:
            return self._binary(node, inputs)
        if node.op == "ConcatV2":
            return self._concat(node, inputs)
        if node.op in PADS:
            return self._pad(node, inputs)
        return self._mean(node, inputs) if node.op == "Mean" else None

    def _enter(self, node: NodeDef, made: NodeDef) -> NodeDef:
        """A node that must survive by name gives what it always gave; the turned one is new."""
        if node.name in self.net.keep:
            made.name = self.fresh(f"{node.name}/nhwc")
            made.attr[ORIGIN].s = f"{node.name}|{node.op}".encode()
            self.nodes[node.name] = self._transposition(node.name, made.name, TO_NCHW)
        self.nodes[made.name] = made
        self.turned_to[node.name] = made.name
        return made

    def _in_nhwc(self, node: NodeDef, inputs: list[str]) -> NodeDef:
        made = with_inputs(node, [self._nhwc(inputs[0]), *inputs[1:]])
        made.attr["data_format"].s = b"NHWC"
        for key in SIZES:
            if key in made.attr and len(made.attr[key].list.i) == 4:
                made.attr[key].list.i[:] = [made.attr[key].list.i[axis] for axis in TO_NHWC]
        pads = list(made.attr["explicit_paddings"].list.i)
        if len(pads) == 8:
            moved = [pads[2 * axis + side] for axis in TO_NHWC for side in (0, 1)]
            made.attr["explicit_paddings"].list.i[:] = moved
        return made

    def _transpose(self, node: NodeDef, inputs: list[str]) -> NodeDef | None:
        order = self.net.constant(inputs[1])
        if order is None or node.name in self.net.keep:
            return None
        if tuple(order) == TO_NCHW:  # whoever turns it back needs no turning at all
            self.turned_to[node.name] = self._plain(inputs[0])
            return None
        if tuple(order) == TO_NHWC and inputs[0] in self.turned_to:
            made = make_node("Identity", node.name, [self.turned_to[inputs[0]]], T=tf.float32)
            made.attr["T"].CopyFrom(node.attr["T"])
            self.nodes[node.name] = made
            return made
        return None

    def _binary(self, node: NodeDef, inputs: list[str]) -> NodeDef | None:
        if not any(name in self.turned_to for name in inputs):
            return None
        found = []
        for name in inputs:
            value = self.net.constant(name)
            if value is not None and value.size > 1:
                turned = _turned_constant(value)
                if turned is None:
                    return None
                found.append(self._constant(f"{node.name}/constant", turned))
            elif value is not None:
                found.append(name)
            elif name in self.turned_to or self._is_image(name):
                found.append(self._nhwc(name))
            else:
                return None
        return self._enter(node, with_inputs(node, found))

    def _concat(self, node: NodeDef, inputs: list[str]) -> NodeDef | None:
        axis = self.net.constant(inputs[-1])
        if axis is None or any(self.net.is_constant(name) for name in inputs[:-1]):
            return None
        if not all(self._is_image(name) for name in inputs[:-1]):
            return None
        where = self._constant(f"{node.name}/axis", np.array(AXES[int(axis)], axis.dtype))
        return self._enter(node, with_inputs(node, [*map(self._nhwc, inputs[:-1]), where]))

    def _pad(self, node: NodeDef, inputs: list[str]) -> NodeDef | None:
        amounts = self.net.constant(inputs[1])
        if amounts is None or amounts.shape != (4, 2):
            return None
        moved = self._constant(f"{node.name}/paddings", amounts[list(TO_NHWC)])
        made = with_inputs(node, [self.turned_to[inputs[0]], moved, *inputs[2:]])
        return self._enter(node, made)

    def _mean(self, node: NodeDef, inputs: list[str]) -> NodeDef | None:
        axes = self.net.constant(inputs[1])
        if axes is None or {AXES[int(axis)] for axis in axes.reshape(-1)} != {1, 2}:
            return None
        moved = self._constant(f"{node.name}/axes", np.array([1, 2], axes.dtype))
        made = with_inputs(node, [self.turned_to[inputs[0]], moved])
        if node.attr["keep_dims"].b:
            return self._enter(node, made)
        self.nodes[node.name] = made  # [batch, channels] in either layout
        return made

    def _is_image(self, tensor: str) -> bool:
        shape = self.net.shape(tensor)
        return shape is not None and len(shape) == 4

    def _nhwc(self, tensor: str) -> str:
        """The tensor turned; a transposition is put in where nothing gives it."""
        if tensor not in self.turned_to:
            name = self.fresh(f"{tensor.replace(':', '_')}/nhwc")
            self.nodes[name] = self._transposition(name, self._plain(tensor), TO_NHWC)
            self.turned_to[tensor] = name
        return self.turned_to[tensor]

    def _plain(self, tensor: str) -> str:
        """What stands for a tensor of the old graph, in its own layout."""
        name = tensor_name(tensor)
        made = self.turned_to.get(name)
        if made is None or made != name:
            return tensor
        back = f"{name}/nchw"
        if back not in self.nodes:
            self.nodes[back] = self._transposition(back, name, TO_NCHW)
        return back

    def _transposition(self, name: str, source: str, order: Iterable[int]) -> NodeDef:
        where = self._constant(f"{name}/order", np.array(list(order), np.int32))
        return make_node("Transpose", name, [source, where], T=tf.float32, Tperm=tf.int32)

    def _constant(self, wish: str, value: np.ndarray) -> str:
        name = self.fresh(wish)
        self.nodes[name] = make_const(name, value)
        return name


def _turned_constant(value: np.ndarray) -> np.ndarray | None:
    """A constant that is broadcast against NCHW, for NHWC."""
    if value.ndim == 4:
        return np.ascontiguousarray(value.transpose(TO_NHWC))
    if value.ndim == 3:
        return np.ascontiguousarray(value.transpose(1, 2, 0))
    return None
