"""Fold ops that only reshape or recast constants, so that weights are found where they are used."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from lpot.backends.onnx.abilities import COMPUTE
from lpot.backends.onnx.graph import Graph, attribute

# Only what exporters put between an initializer and the op that uses it.
FOLDABLE = {
    *("Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Cast", "Flatten"),
    *("Slice", "Concat"),  # the gates of recurrent layers are put in order with these
}
# Arithmetic on shapes and pads, which they write out as well: few integers only.
COUNTING = {"ConstantOfShape", "Gather", "Add", "Sub", "Mul"}
FEW = 256
MOST = 2**24  # entries of a weight that is one number throughout
NARROW = {TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2}


def fold_constants(graph: Graph) -> Graph:
    """The graph without them, and with weights where only their shape and number are written.

    No whole numbers are written out that the file would be larger with: they are no weights.
    """
    weights = dict(graph.weights)
    kept: list[NodeProto] = []
    for node in graph.nodes:
        narrow = graph.opaque.get(node.input[0]) if _widens(node, graph) else None
        if narrow is not None:
            wide = numpy_helper.to_array(narrow).astype(np.float32)
            weights[node.output[0]] = np.asarray(wide, order="C")
        elif _folds(node, weights, graph):
            weights[node.output[0]] = _compute(node, weights, graph)
        else:
            kept.append(node)
    return graph if len(kept) == len(graph.nodes) else graph.replaced(kept, weights)


def _widens(node: NodeProto, graph: Graph) -> bool:
    """A Cast from a narrow float that numpy does not know to float32."""
    return bool(
        node.op_type == "Cast"
        and attribute(node, "to") == TensorProto.FLOAT
        and node.output[0] not in graph.outputs
        and node.input[0] in graph.opaque
        and graph.opaque[node.input[0]].data_type in NARROW
    )


def _folds(node: NodeProto, weights: dict[str, np.ndarray], graph: Graph) -> bool:
    return (
        (node.op_type in FOLDABLE or (node.op_type in COUNTING and _counts(node, weights, graph)))
        and node.domain in ("", "ai.onnx")
        and len(node.output) == 1
        and node.output[0] not in graph.outputs
        and all(name in weights for name in node.input if name)
        and any(True for _ in node.input)
        and not _grows(node, weights, graph)
    )


def _grows(node: NodeProto, weights: dict[str, np.ndarray], graph: Graph) -> bool:
    """Whether it makes more bytes of whole numbers than it reads, and not just a few."""
    read = [weights[name] for name in node.input if name]
    if node.op_type == "Cast":
        made = helper.tensor_dtype_to_np_dtype(attribute(node, "to", TensorProto.FLOAT))
        grown = np.dtype(made).itemsize > read[0].dtype.itemsize
        return bool(np.dtype(made).kind in "iu" and grown and read[0].size > FEW)
    return False


def _is_weight(node: NodeProto, weights: dict[str, np.ndarray], graph: Graph) -> bool:
    """One number throughout, for an op that has an INT8 kernel."""
    shape = weights.get(node.input[0], np.array([-1]))
    readers = graph.consumers.get(node.output[0], ())
    return 0 < int(np.prod(shape)) <= MOST and any(
        reader.op_type in COMPUTE and node.output[0] in reader.input[1:2] for reader in readers
    )


def _counts(node: NodeProto, weights: dict[str, np.ndarray], graph: Graph) -> bool:
    if node.op_type == "ConstantOfShape" and _is_weight(node, weights, graph):
        return True
    given = [weights[name] for name in node.input if name in weights]
    small = all(array.dtype.kind == "i" and array.size <= FEW for array in given)
    if node.op_type != "ConstantOfShape":
        return small
    return small and bool(given) and 0 <= int(np.prod(given[0])) <= FEW


def _compute(node: NodeProto, weights: dict[str, np.ndarray], graph: Graph) -> np.ndarray:
    names = [name for name in dict.fromkeys(node.input) if name]
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(weights[name].dtype), weights[name].shape
        )
        for name in names
    ]
    output = onnx.ValueInfoProto(name=node.output[0])
    body = helper.make_graph([node], "fold", inputs, [output])
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", graph.opset)])
    result = ReferenceEvaluator(model).run(
        None, {name: np.asarray(weights[name]) for name in names}
    )
    return np.asarray(result[0], order="C")  # ascontiguousarray makes a vector of a scalar
