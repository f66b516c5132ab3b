"""Drop control edges that order nothing: they would keep the float weights alive.

Frozen Keras models make their outputs wait for every weight that was once a variable.
"""

from __future__ import annotations

from tensorflow.python.framework import op_def_registry

from lpot.backends.tensorflow.runtime import NodeDef
from lpot.backends.tensorflow.structure.graph import CONTROL_FLOW, Net
from lpot.backends.tensorflow.structure.nodes import has_control, with_inputs


def drop_controls(net: Net) -> Net:
    """An edge stays where something with an effect, or a branch, stands before it."""
    effects = _after_effects(net)
    changes = {}
    for name, node in net.nodes.items():
        if not has_control(node):
            continue
        kept = [n for n in node.input if not n.startswith("^") or n[1:] in effects]
        if len(kept) != len(node.input):
            changes[name] = with_inputs(node, kept)
    return net.changed(changes).pruned()


def _after_effects(net: Net) -> set[str]:
    """Nodes with an effect, and all that come after one."""
    found: set[str] = set()
    front = [name for name, node in net.nodes.items() if _has_effect(node)]
    while front:
        name = front.pop()
        if name not in found:
            found.add(name)
            front.extend(net.heirs.get(name, ()))
    return found


def _has_effect(node: NodeDef) -> bool:
    if node.op in CONTROL_FLOW:
        return True
    definition = op_def_registry.get(node.op)
    if definition is None or definition.is_stateful:
        return True
    return any(value.HasField("func") for value in node.attr.values())
