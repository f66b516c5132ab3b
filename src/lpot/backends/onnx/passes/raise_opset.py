"""Bring a model to the opset that per-channel DequantizeLinear needs."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import onnx
from onnx import ModelProto, NodeProto, version_converter

from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.load import infer
from lpot.core.errors import UnsupportedModel, first_line

logger = logging.getLogger(__name__)

NEEDED = 13
LEAST = 11  # below, ops have other forms than those the quantizer knows


def raise_opset(graph: Graph) -> Graph:
    """The graph at opset 13 or newer; as it is where the converter can't, which is logged.

    A model of other domains alone has no opset, and no op that would need another.
    """
    if graph.opset >= NEEDED or graph.opset == 0:
        return graph
    skeleton, _ = graph.skeleton()
    try:
        raised: ModelProto = version_converter.convert_version(skeleton, NEEDED)
    except (RuntimeError, ValueError, version_converter.ConvertError) as error:
        _give_up(graph.opset, first_line(error))
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
    _name(nodes, graph.nodes)
    header = ModelProto()
    header.CopyFrom(graph.header)
    for entry in header.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = NEEDED
    header.ir_version = max(header.ir_version, 7)
    bare = Graph(header, tuple(nodes), weights, graph.opaque)
    types, shapes = infer(bare)
    return Graph(header, tuple(nodes), weights, graph.opaque, types, shapes)


def _give_up(opset: int, why: str) -> None:
    if opset < LEAST:
        raise UnsupportedModel(
            f"the model has opset {opset}, which can't be raised to {NEEDED} ({why}): "
            f"export it again with opset {NEEDED} or newer"
        )
    logger.warning(
        "opset %d can't be raised to %d (%s): weights are quantized per tensor",
        opset,
        NEEDED,
        why,
    )


def _name(nodes: Sequence[NodeProto], before: Sequence[NodeProto]) -> None:
    """Each op keeps its name, however many ops the converter made of it; the others get new ones.

    Of several the one of the same kind is the op itself: Softmax becomes Flatten, Softmax, Reshape.
    """
    kinds = {node.name: node.op_type for node in before}
    makers = {tuple(node.output): node.name for node in before}
    taken = {node.name for node in nodes if node.name and kinds.get(node.name) == node.op_type}
    seen: set[str] = set()
    for index, node in enumerate(nodes):
        same = node.name in taken and kinds[node.name] == node.op_type and node.name not in seen
        name = node.name if same else makers.get(tuple(node.output), "")
        if not name or (not same and name in taken) or name in seen:
            name = f"{node.op_type}_raised_{index}"
            while name in kinds or name in seen:
                name += "_"
        node.name = name
        seen.add(name)
