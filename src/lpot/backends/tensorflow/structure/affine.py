"""Reading nodes that are one scale and one shift per channel: biases, batch norms, constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import data_inputs, has_control, text_attr

# Ops that do the arithmetic, with their weight as second input.
COMPUTE = ("Conv2D", "DepthwiseConv2dNative", "MatMul")
BATCH_NORMS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")


@dataclass(frozen=True, eq=False)
class Affine:
    """y = x · scale + shift, one of each per output channel."""

    scale: np.ndarray
    shift: np.ndarray

    @classmethod
    def identity(cls, channels: int) -> Affine:
        return cls(np.ones(channels), np.zeros(channels))

    def then(self, other: Affine) -> Affine:
        return Affine(self.scale * other.scale, self.shift * other.scale + other.shift)

    @property
    def scales(self) -> bool:
        return bool((self.scale != 1.0).any())


def affine_of(net: Net, node: NodeDef, source: str, channels: int, rank: int) -> Affine | None:
    """What `node` does to `source`, if it is a scale and shift by constants; None otherwise."""
    if has_control(node) or not is_nhwc(node):
        return None
    if node.op in BATCH_NORMS:
        return _batch_norm(net, node, source, channels)
    inputs = data_inputs(node)
    if len(inputs) != 2 or inputs.count(source) != 1:
        return None
    swapped = inputs[1] == source
    value = _per_channel(net.constant(inputs[0] if swapped else inputs[1]), channels, rank)
    if value is None:
        return None
    one, zero = np.ones(channels), np.zeros(channels)
    if node.op in ("BiasAdd", "Add", "AddV2", "AddN"):
        return Affine(one, value)
    if node.op == "Sub":
        return Affine(-one, value) if swapped else Affine(one, -value)
    if node.op == "Mul":
        return Affine(value, zero)
    if node.op in ("RealDiv", "Div") and not swapped and (value != 0).all():
        return Affine(1.0 / value, zero)
    return None


def _per_channel(value: np.ndarray | None, channels: int, rank: int) -> np.ndarray | None:
    """As one float64 per channel; None where broadcasting would do anything else."""
    if value is None or value.dtype != np.float32 or value.ndim > rank:
        return None
    if value.size == 1:
        return np.full(channels, float(value.reshape(-1)[0]))
    if value.size == channels and value.shape[-1] == channels:
        return value.reshape(-1).astype(np.float64)
    return None


def _batch_norm(net: Net, node: NodeDef, source: str, channels: int) -> Affine | None:
    inputs = data_inputs(node)
    training = node.attr["is_training"].b if "is_training" in node.attr else True
    if training or inputs[0] != source or len(inputs) != 5:
        return None
    parts = [_per_channel(net.constant(name), channels, 1) for name in inputs[1:]]
    if any(part is None for part in parts):
        return None
    gamma, beta, mean, variance = (np.asarray(part) for part in parts)
    epsilon = node.attr["epsilon"].f if "epsilon" in node.attr else 1e-4
    scale = gamma / np.sqrt(variance + epsilon)
    return Affine(scale, beta - mean * scale)


def is_nhwc(node: NodeDef) -> bool:
    return text_attr(node, "data_format", "NHWC") == "NHWC"


def rank_of(node: NodeDef) -> int:
    """Axes of what a compute op gives."""
    return 2 if node.op == "MatMul" else 4


def output_channels(node: NodeDef, weight: np.ndarray) -> int:
    if node.op == "DepthwiseConv2dNative":
        return int(weight.shape[2] * weight.shape[3])
    if node.op == "MatMul" and is_transposed(node):
        return int(weight.shape[0])
    return int(weight.shape[-1])


def is_transposed(node: NodeDef) -> bool:
    return "transpose_b" in node.attr and bool(node.attr["transpose_b"].b)


def scaled_weight(node: NodeDef, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The weight with each output channel multiplied."""
    if node.op == "DepthwiseConv2dNative":
        factor = scale.reshape(weight.shape[2:])
    elif node.op == "MatMul" and is_transposed(node):
        factor = scale[:, None]
    else:
        factor = scale
    return np.asarray(weight.astype(np.float64) * factor, np.float32)


def is_float32(node: NodeDef) -> bool:
    return "T" in node.attr and node.attr["T"].type == tf.float32.as_datatype_enum
