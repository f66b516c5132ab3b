"""Weights and biases as the INT8 kernels take them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lpot.backends.tensorflow.formats import Format
from lpot.backends.tensorflow.prepare import Prepared
from lpot.backends.tensorflow.structure.affine import is_transposed
from lpot.backends.tensorflow.structure.layers import Layer
from lpot.core.numerics.rounding import quantize_weight
from lpot.core.recipe import TensorConfig


@dataclass(frozen=True, eq=False)
class Weight:
    """Integers in the kernel's layout; `peak` is the value that 127 stands for."""

    integers: np.ndarray
    peak: np.ndarray
    sums: np.ndarray  # of the real weights, per output channel


def weight_of(prepared: Prepared, layer: Layer, config: TensorConfig, form: Format) -> Weight:
    """Quantized once for each way of quantizing; trials share them."""
    signed = form.dtype == "qint8"
    key = (layer.node, config.granularity, config.bits, signed)
    if key not in prepared.weights:
        prepared.weights[key] = _quantize(prepared, layer, config, signed)
    weight: Weight = prepared.weights[key]
    return weight


def _quantize(prepared: Prepared, layer: Layer, config: TensorConfig, signed: bool) -> Weight:
    node = prepared.net.nodes[layer.node]
    real = prepared.net.constant(layer.weight)
    assert real is not None
    if layer.is_matmul and is_transposed(node):
        real = np.ascontiguousarray(real.T)
    flat = real.reshape(*real.shape[:2], -1) if node.op == "DepthwiseConv2dNative" else real
    bits = config.bits or 8
    # Kernels without VNNI halve signed × signed convolutions' weights: only even integers survive.
    halved = signed and not layer.is_matmul and (bits < 8 or node.op == "DepthwiseConv2dNative")
    axis = flat.ndim - 1 if config.granularity == "per_channel" else None
    integers, params = quantize_weight(flat, axis, "sym", min(bits, 7) if halved else bits)
    scale = np.asarray(params.scale, np.float64)
    if halved:
        integers, scale = integers * 2, scale / 2
    sums = integers.astype(np.int64).reshape(-1, flat.shape[-1]).sum(axis=0) * scale
    return Weight(
        integers.astype(np.int8).reshape(real.shape),
        (127.0 * scale).astype(np.float32),
        np.broadcast_to(sums, (layer.channels,)),
    )


def corrected_bias(
    prepared: Prepared, layer: Layer, shifts: Mapping[str, np.ndarray]
) -> np.ndarray:
    """The bias less what rounding the weight adds on the average; zeros where there is none."""
    bias = np.zeros(layer.channels)
    if layer.bias is not None:
        value = prepared.net.constant(layer.bias)
        assert value is not None
        bias = value.astype(np.float64)
    shift = shifts.get(layer.key.name)
    return bias if shift is None else bias - shift


def bias_of(
    bias: np.ndarray,
    weight: Weight,
    taken: Format,
    shift_out: float = 0.0,
    shift_added: float = 0.0,
) -> np.ndarray:
    """The bias, with the zero points of input, output and addend worked in."""
    total: np.ndarray = bias - taken.shift * weight.sums + shift_out - shift_added
    return total.astype(np.float32)
