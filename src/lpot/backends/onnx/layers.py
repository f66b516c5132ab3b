"""Ops with weights of their own, seen as makers and readers of channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from lpot.backends.onnx.graph import Graph, attribute

Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Layer:
    """One op. `reads` and `makes` are the axes that its channels lie on, None where it has none."""

    node: NodeProto
    active: str  # the input that carries activations
    weight: str
    bias: str  # '' for none
    reads: int | None
    makes: int | None


def layer_of(graph: Graph, node: NodeProto) -> Layer | None:
    """The op as a layer; None for others, and where others use its weights too."""
    find = _FINDERS.get(node.op_type)
    if find is None:
        return None
    shape = graph.shapes.get(node.output[0])
    layer = find(graph, node, None if shape is None else len(shape))
    if layer is None:
        return None
    own = [name for name in node.input if name and name != layer.active]
    return layer if all(_is_own(graph, name) for name in own) else None


def _is_own(graph: Graph, name: str) -> bool:
    return (
        graph.is_constant(name)
        and len(graph.consumers[name]) == 1
        and graph.weights[name].dtype == np.float32
        and graph.weights[name].size > 0
        and bool(np.isfinite(graph.weights[name]).all())
    )


def _input(node: NodeProto, index: int) -> str:
    return node.input[index] if len(node.input) > index else ""


def _conv(graph: Graph, node: NodeProto, rank: int | None) -> Layer | None:
    return Layer(node, node.input[0], node.input[1], _input(node, 2), 1, 1)


def _gemm(graph: Graph, node: NodeProto, rank: int | None) -> Layer | None:
    plain = attribute(node, "alpha", 1.0) == 1.0 and attribute(node, "beta", 1.0) == 1.0
    weight, bias = graph.weights.get(node.input[1]), _input(node, 2)
    if attribute(node, "transA", 0) or not plain or weight is None or weight.ndim != 2:
        return None
    columns = weight.shape[0 if attribute(node, "transB", 0) else 1]
    if bias and (not graph.is_constant(bias) or graph.weights[bias].shape != (columns,)):
        return None  # numbers for rows, or one for all columns: no channel has its own
    return Layer(node, node.input[0], node.input[1], bias, 1, 1)


def _matmul(graph: Graph, node: NodeProto, rank: int | None) -> Layer | None:
    weight = graph.weights.get(node.input[1])
    if weight is None or weight.ndim != 2 or rank is None:
        return None
    return Layer(node, node.input[0], node.input[1], "", rank - 1, rank - 1)


def _layer_norm(graph: Graph, node: NodeProto, rank: int | None) -> Layer | None:
    """Its scale and shift make channels; it reads none, for it normalises whatever comes."""
    if rank is None or attribute(node, "axis", -1) not in (-1, rank - 1):
        return None
    return Layer(node, node.input[0], node.input[1], _input(node, 2), None, rank - 1)


def _batch_norm(graph: Graph, node: NodeProto, rank: int | None) -> Layer | None:
    """One that could not be folded: a factor and a shift for each channel."""
    if attribute(node, "training_mode", 0) or any(node.output[1:]):
        return None
    return Layer(node, node.input[0], node.input[1], node.input[2], 1, 1)


def _mul(graph: Graph, node: NodeProto, rank: int | None) -> Layer | None:
    """A product with one number for each channel."""
    constants = [name for name in node.input if graph.is_constant(name)]
    active = [name for name in node.input if not graph.is_constant(name)]
    if len(constants) != 1 or rank is None:
        return None
    if graph.shapes.get(active[0]) != graph.shapes[node.output[0]]:
        return None
    axis = vector_axis(graph.weights[constants[0]], rank)
    return None if axis is None else Layer(node, active[0], constants[0], "", axis, axis)


_FINDERS = {
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "LayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "Mul": _mul,
}


def vector_axis(array: np.ndarray, rank: int) -> int | None:
    """The one axis of a tensor of `rank` axes along which a constant varies."""
    wide = [index for index, size in enumerate(array.shape) if size > 1]
    return rank - array.ndim + wide[0] if len(wide) == 1 and array.ndim <= rank else None


# -- weights by channel --------------------------------------------------------------------------


def made_by(weights: Weights, layer: Layer) -> np.ndarray:
    """The largest weight or bias behind each channel that the layer makes."""
    array = weights[layer.weight]
    rows = array.reshape(-1, 1)
    if layer.node.op_type in ("Conv", "Gemm", "MatMul"):
        turned = array if _outputs_first(layer) else array.T
        rows = turned.reshape(turned.shape[0], -1)
    made: np.ndarray = np.abs(rows).max(axis=1)
    return np.maximum(made, np.abs(weights[layer.bias]).reshape(-1)) if layer.bias else made


def read_by(weights: Weights, layer: Layer) -> np.ndarray:
    """The largest weight with which the layer reads each channel."""
    array = weights[layer.weight]
    if layer.node.op_type == "Mul":
        rows = array.reshape(-1, 1)
    elif layer.node.op_type == "BatchNormalization":
        rows = (array / _deviation(weights, layer)).reshape(-1, 1)
    elif layer.node.op_type == "Conv":
        group, outputs, inputs = _groups(layer, array)
        # (group, out, in, …) → (group * in, out, …): channel c of group g is row g * in + c
        split = array.reshape(group, outputs, inputs, -1)
        rows = split.transpose(0, 2, 1, 3).reshape(group * inputs, -1)
    else:
        rows = array.T if _outputs_first(layer) else array
    largest: np.ndarray = np.abs(rows).max(axis=1)
    return largest


def scale_made(weights: dict[str, np.ndarray], layer: Layer, factors: np.ndarray) -> None:
    """Multiply the channels that the layer makes."""
    array = weights[layer.weight]
    if layer.node.op_type in ("Gemm", "MatMul") and not _outputs_first(layer):
        weights[layer.weight] = array * factors
    elif layer.node.op_type in ("Conv", "Gemm"):
        weights[layer.weight] = array * factors.reshape(-1, *[1] * (array.ndim - 1))
    else:
        weights[layer.weight] = array * factors.reshape(array.shape)
    if layer.bias:
        bias = weights[layer.bias]
        weights[layer.bias] = bias * factors.reshape(bias.shape)


def scale_read(weights: dict[str, np.ndarray], layer: Layer, factors: np.ndarray) -> None:
    """Multiply what the layer makes of each channel it reads."""
    array = weights[layer.weight]
    if layer.node.op_type in ("Mul", "BatchNormalization"):
        weights[layer.weight] = array * factors.reshape(array.shape)
        if layer.node.op_type == "BatchNormalization":
            mean = layer.node.input[3]
            weights[mean] = weights[mean] / factors
    elif layer.node.op_type == "Conv":
        group, outputs, inputs = _groups(layer, array)
        spread = factors.reshape(group, 1, inputs).repeat(outputs, axis=1)
        spread = spread.reshape(group * outputs, inputs, *[1] * (array.ndim - 2))
        weights[layer.weight] = array * spread
    else:
        weights[layer.weight] = array * (factors if _outputs_first(layer) else factors[:, None])


def _deviation(weights: Weights, layer: Layer) -> np.ndarray:
    """What a batch norm divides each channel by."""
    epsilon = float(attribute(layer.node, "epsilon", 1e-5))
    deviation: np.ndarray = np.sqrt(np.maximum(weights[layer.node.input[4]], 0.0) + epsilon)
    return deviation


def _outputs_first(layer: Layer) -> bool:
    """Whether the weight's first axis runs over the channels made."""
    return layer.node.op_type == "Conv" or bool(attribute(layer.node, "transB", 0))


def _groups(layer: Layer, array: np.ndarray) -> tuple[int, int, int]:
    """Groups of a convolution, and the channels that one of them makes and reads."""
    group = int(attribute(layer.node, "group", 1) or 1)
    return group, array.shape[0] // group, array.shape[1]
