"""Bring a model to the opset that per-channel DequantizeLinear needs."""

from __future__ import annotations

import logging

import onnx
from onnx import ModelProto, version_converter

from lpot.backends.onnx.graph import Graph

logger = logging.getLogger(__name__)

NEEDED = 13


def raise_opset(graph: Graph) -> Graph:
    """The graph at opset 13 or newer; as it is where the converter can't, which is logged."""
    if graph.opset >= NEEDED:
        return graph
    skeleton, _ = graph.skeleton()
    try:
        raised: ModelProto = version_converter.convert_version(skeleton, NEEDED)
    except (RuntimeError, ValueError, version_converter.ConvertError) as error:
        logger.warning(
            "opset %d can't be raised to %d (%s): weights are quantized per tensor",
            graph.opset,
            NEEDED,
            str(error).splitlines()[0],
        )
        return graph
    weights = dict(graph.weights)
    for tensor in raised.graph.initializer:
        if tensor.name not in weights and tensor.name not in graph.opaque:
            weights[tensor.name] = onnx.numpy_helper.to_array(tensor)
    nodes = []
    for node in raised.graph.node:
        if (
            node.op_type == "Constant"
            and len(node.attribute) == 1
            and node.attribute[0].name == "value"
        ):
            weights[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
        else:
            nodes.append(node)
    names = {tuple(node.output): node.name for node in graph.nodes}
    for index, node in enumerate(nodes):
        node.name = names.get(tuple(node.output), node.name or f"{node.op_type}_raised_{index}")
    header = ModelProto()
    header.CopyFrom(graph.header)
    for entry in header.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = NEEDED
    header.ir_version = max(header.ir_version, 7)
    return Graph(header, tuple(nodes), weights, graph.opaque, graph.types, graph.shapes)
