"""The torn ONNX nets as TensorFlow graphs, channels last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from lpot.backends.tensorflow.runtime import tf, v1

Weights = dict[str, np.ndarray]


def as_tensorflow(model: onnx.ModelProto) -> tf.Graph:
    """The same function of the same input with its channels last; the output is `out`."""
    weights = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    graph = tf.Graph()
    with graph.as_default():
        made: dict[str, Any] = {"x": _inlet(model.graph.input[0])}
        for node in model.graph.node:
            maker = _MAKERS.get(node.op_type, _plain)
            made[node.output[0]] = maker(node, made, weights)
        tf.identity(made[model.graph.output[0].name], name="out")
    return graph


def turned(batch: np.ndarray) -> np.ndarray:
    """Pictures with their channels last; anything else as it is."""
    return np.ascontiguousarray(batch.transpose(0, 2, 3, 1)) if batch.ndim == 4 else batch


def _inlet(value: onnx.ValueInfoProto) -> Any:
    sizes = [item.dim_value or None for item in value.type.tensor_type.shape.dim]
    shape = [sizes[0], *sizes[2:], sizes[1]] if len(sizes) == 4 else sizes
    return v1.placeholder(tf.float32, shape, name="x")


def _conv(node: onnx.NodeProto, made: dict[str, Any], weights: Weights) -> Any:
    weight, bias = (weights[name] for name in node.input[1:])
    given = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    padding = "SAME" if any(given["pads"]) or weight.shape[2] == 1 else "VALID"
    x = made[node.input[0]]
    if given.get("group", 1) > 1:
        kernel = weight.transpose(2, 3, 0, 1)
        y = tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], padding, name=node.name)
    else:
        y = tf.nn.conv2d(x, weight.transpose(2, 3, 1, 0), 1, padding, name=node.name)
    return tf.nn.bias_add(y, bias)


def _gemm(node: onnx.NodeProto, made: dict[str, Any], weights: Weights) -> Any:
    weight, bias = (weights[name] for name in node.input[1:])
    return tf.nn.bias_add(tf.matmul(made[node.input[0]], weight.T, name=node.name), bias)


def _matmul(node: onnx.NodeProto, made: dict[str, Any], weights: Weights) -> Any:
    """A product with a weight is one of two axes, as graphs of transformers have it."""
    x, name = made[node.input[0]], node.input[1]
    if name not in weights:
        return tf.matmul(x, made[name], name=node.name)
    rows, columns = weights[name].shape
    flat = tf.matmul(tf.reshape(x, [-1, rows]), weights[name], name=node.name)
    return tf.reshape(flat, [-1, *x.shape[1:-1], columns])


def _norm(node: onnx.NodeProto, made: dict[str, Any], weights: Weights) -> Any:
    x = made[node.input[0]]
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    scale, shift = (weights[name] for name in node.input[1:])
    return tf.nn.batch_normalization(x, mean, variance, shift, scale, 1e-5, name=node.name)


def _reshape(node: onnx.NodeProto, made: dict[str, Any], weights: Weights) -> Any:
    x = made[node.input[0]]
    _, *sizes = weights[node.input[1]].tolist()
    return tf.reshape(x, [-1, *(size or x.shape[at] for at, size in enumerate(sizes, 1))])


def _mean(node: onnx.NodeProto, made: dict[str, Any], weights: Weights) -> Any:
    return tf.reduce_mean(made[node.input[0]], [1, 2], keepdims=True)


def _flatten(node: onnx.NodeProto, made: dict[str, Any], weights: Weights) -> Any:
    return tf.squeeze(made[node.input[0]], [1, 2])


def _concat(node: onnx.NodeProto, made: dict[str, Any], weights: Weights) -> Any:
    return tf.concat([made[name] for name in node.input], -1)


def _transpose(node: onnx.NodeProto, made: dict[str, Any], weights: Weights) -> Any:
    return tf.transpose(made[node.input[0]], list(node.attribute[0].ints))


def _pool(node: onnx.NodeProto, made: dict[str, Any], weights: Weights) -> Any:
    return tf.nn.max_pool2d(made[node.input[0]], 2, 2, "VALID", name=node.name)


def _thin(node: onnx.NodeProto, made: dict[str, Any], weights: Weights) -> Any:
    return made[node.input[0]][:, ::2, ::2]


def _pad(node: onnx.NodeProto, made: dict[str, Any], weights: Weights) -> Any:
    pads = weights[node.input[1]]
    return tf.pad(made[node.input[0]], [[0, 0], [0, 0], [0, 0], [pads[1], pads[5]]])


def _plain(node: onnx.NodeProto, made: dict[str, Any], weights: Weights) -> Any:
    """A function of whole tensors."""
    values = [made[name] if name in made else weights[name] for name in node.input]
    return _FUNCTIONS[node.op_type](*values)


_MAKERS: dict[str, Callable[[onnx.NodeProto, dict[str, Any], Weights], Any]] = {
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "LayerNormalization": _norm,
    "Reshape": _reshape,
    "GlobalAveragePool": _mean,
    "Flatten": _flatten,
    "Concat": _concat,
    "Transpose": _transpose,
    "MaxPool": _pool,
    "Slice": _thin,
    "Pad": _pad,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Relu": tf.nn.relu,
    "Add": tf.add,
    "Mul": tf.multiply,
    "Div": tf.divide,
    "Erf": tf.math.erf,
    "Tanh": tf.tanh,
    "Sigmoid": tf.sigmoid,
    "Softmax": tf.nn.softmax,
    "HardSwish": lambda x: x * tf.nn.relu6(x + 3.0) / 6.0,
    "HardSigmoid": lambda x: tf.nn.relu6(x + 3.0) / 6.0,
}
