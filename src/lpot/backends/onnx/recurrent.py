"""LSTM in INT8: weights in integers, inputs and states quantized while running, step by step.

ONNX Runtime's own op does that (DynamicQuantizeLSTM); there is none for GRU and RNN.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from lpot.backends.onnx.graph import Graph, subgraphs
from lpot.backends.onnx.run import ORT_ERRORS
from lpot.core.numerics.rounding import quantize_weight

DOMAIN = "com.microsoft"
KIND = "DynamicQuantizeLSTM"
WEIGHTS = (1, 2)  # the places of the weights of inputs and of states


def why_not_lstm(graph: Graph, node: NodeProto) -> str:
    """The reason an LSTM must stay in FP32; empty when it need not."""
    for name in (node.input[place] for place in WEIGHTS):
        array = graph.weights.get(name)
        if array is None or array.dtype != np.float32 or array.ndim != 3 or not array.size:
            return "its weights are not constants in float32"
        if not np.isfinite(array).all():
            return f"weight {name!r} holds NaN or Inf"
        if any(user.op_type != "LSTM" for user in graph.consumers[name]):
            return "its weights are read by other ops, too, and stay in FP32"
    return "" if has_kernel() else f"ONNX Runtime {onnxruntime.__version__} has no {KIND}"


@lru_cache
def has_kernel() -> bool:
    """The op is the runtime's own, not ONNX's: a version may come without it."""
    weight, scale = lstm_weight(np.ones((1, 4, 1), np.float32), False, 8)
    zero = np.zeros(1, np.int8)
    arrays = {"w": weight, "r": weight, "scale": scale, "zero": zero}
    inputs = ["x", "w", "r", "", "", "", "", "", "scale", "zero", "scale", "zero"]
    node = helper.make_node(KIND, inputs, ["y"], domain=DOMAIN, hidden_size=1)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    held = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph([node], "lstm", values[:1], values[1:], held)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString())
        session.run(None, {"x": np.ones((1, 1, 1), np.float32)})
    except ORT_ERRORS:
        return False
    return True


def lstm_weight(array: np.ndarray, per_channel: bool, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """[directions, gates, inputs] as integers [directions, inputs, gates], and their scales."""
    ways, gates, _ = array.shape
    rows = array.reshape(ways * gates if per_channel else ways, -1)
    data, params = quantize_weight(rows, 0, bits=bits)
    scale = np.asarray(params.scale, np.float32).reshape((ways, gates) if per_channel else (ways,))
    return np.ascontiguousarray(data.reshape(array.shape).transpose(0, 2, 1)), scale


def lstm_node(node: NodeProto, inputs: list[str], outputs: list[str]) -> NodeProto:
    """`inputs` are the op's own, with the scales and zero points of both weights behind them."""
    made = helper.make_node(KIND, inputs, outputs, name=node.name, domain=DOMAIN)
    made.attribute.extend(item for item in node.attribute if item.name != "layout")
    return made


def with_domain(graph: Graph) -> Graph:
    """The graph with the runtime's own domain declared, if some op of it is in use."""
    declared = {entry.domain for entry in graph.header.opset_import}
    if DOMAIN in declared or not any(map(_uses_domain, graph.nodes)):
        return graph
    header = ModelProto()
    header.CopyFrom(graph.header)
    header.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return Graph(header, graph.nodes, graph.weights, graph.opaque, graph.types, graph.shapes)


def _uses_domain(node: NodeProto) -> bool:
    inner = (below for graph in subgraphs(node) for below in graph.node)
    return node.domain == DOMAIN or any(map(_uses_domain, inner))
