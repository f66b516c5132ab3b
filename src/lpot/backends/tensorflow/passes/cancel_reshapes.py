"""Take out Reshapes that undo each other, join those in a row, and keep one of equal ones."""

from __future__ import annotations

from lpot.backends.tensorflow.graph import Net
from lpot.backends.tensorflow.nodes import data_inputs, has_control, with_inputs
from lpot.backends.tensorflow.runtime import NodeDef


def cancel_reshapes(net: Net) -> Net:
    renamed: dict[str, str] = {}
    changes: dict[str, NodeDef] = {}
    seen: dict[tuple[str, bytes], str] = {}
    for name in net.order:
        node = net.nodes[name]
        if not _is_plain(net, node):
            continue
        start = _start(net, node, renamed)
        shape = net.shape(name)
        if shape is not None and _is_same(net.shape(start), shape):
            renamed[name] = start
            continue
        sizes = net.constant(data_inputs(node)[1])
        assert sizes is not None
        twin = seen.setdefault((start, sizes.astype("int64").tobytes()), name)
        if twin != name:
            renamed[name] = twin
        elif start != data_inputs(node)[0]:
            changes[name] = with_inputs(node, [start, data_inputs(node)[1]])
    return net.changed(changes).rewired(renamed).pruned()


def _is_plain(net: Net, node: NodeDef) -> bool:
    """A Reshape to a constant shape that says what it is by itself."""
    if node.op != "Reshape" or has_control(node) or node.name in net.in_loop:
        return False
    sizes = net.constant(data_inputs(node)[1])
    return sizes is not None and 0 not in sizes


def _start(net: Net, node: NodeDef, renamed: dict[str, str]) -> str:
    """The tensor before all Reshapes in a row that end in `node`."""
    source = data_inputs(node)[0]
    source = renamed.get(source, source)
    before = net.producer(source)
    if before is None or before.op != "Reshape" or has_control(before):
        return source
    return _start(net, before, renamed)


def _is_same(start: tuple[int | None, ...] | None, end: tuple[int | None, ...]) -> bool:
    """Same sizes, with at most one unknown and in the same place: then that one is equal too."""
    return start == end and sum(size is None for size in end) <= 1
