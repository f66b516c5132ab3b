"""Add a bias before the residual: (conv + shortcut) + bias → (conv + bias) + shortcut."""

from __future__ import annotations

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.affine import COMPUTE
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import data_inputs, has_control, make_node

SUMS = ("Add", "AddV2", "AddN")


def hoist_bias(net: Net) -> Net:
    changes: dict[str, NodeDef] = {}
    for name in net.order:
        outer = net.nodes[name]
        found = _bias_after_sum(net, outer)
        if found is None:
            continue
        inner, bias = found
        main, other = _split(net, inner)
        if main is None or main in changes:
            continue
        changes[inner.name] = make_node("BiasAdd", inner.name, [main, bias], T=tf.float32)
        changes[name] = make_node("AddV2", name, [inner.name, other], T=tf.float32)
    return net.changed(changes)


def _bias_after_sum(net: Net, outer: NodeDef) -> tuple[NodeDef, str] | None:
    if outer.op not in (*SUMS, "BiasAdd") or has_control(outer) or len(outer.input) != 2:
        return None
    for first, second in (data_inputs(outer), data_inputs(outer)[::-1]):
        inner = net.producer(first)
        value = net.constant(second)
        if value is None or value.ndim != 1 or inner is None or inner.op not in SUMS:
            continue
        if (
            len(inner.input) == 2
            and not has_control(inner)
            and net.only_user(inner.name) is not None
        ):
            return inner, second
    return None


def _split(net: Net, inner: NodeDef) -> tuple[str | None, str]:
    """The operand a bias can be folded into, and the other one."""
    first, second = data_inputs(inner)
    for main, other in ((first, second), (second, first)):
        node = net.producer(main)
        if node is None or node.op not in COMPUTE or net.only_user(main) is None:
            continue
        if not net.is_constant(other):
            return main, other
    return None, ""
