"""What TensorFlow and this CPU can do: choices for each kind of op, and a self-test."""

from __future__ import annotations

import logging
import os
from functools import lru_cache

import numpy as np

from lpot.backends.tensorflow.nodes import make_const, make_node
from lpot.backends.tensorflow.run import open_session
from lpot.backends.tensorflow.runtime import GraphDef, tf
from lpot.core.backend import Target
from lpot.core.cpu import this_cpu
from lpot.core.recipe import FP32, OpConfig, TensorConfig

logger = logging.getLogger(__name__)

# Activations, the most wanted first: quint8 with a zero point loses least and runs fastest. The
# symmetric ones are what the original offered.
ACTIVATIONS = (
    *(("uint8", "asym", algorithm) for algorithm in ("minmax", "percentile", "kl", "mse")),
    *(("int8", "sym", algorithm) for algorithm in ("minmax", "kl")),
    *(("uint8", "sym", algorithm) for algorithm in ("minmax", "kl")),
)
BF16 = OpConfig(TensorConfig("bf16"), None, "float")
NO_KERNEL = {
    "Conv3D": "TensorFlow has no INT8 kernel for it",
    "Conv2DBackpropInput": "TensorFlow has no INT8 kernel for transposed convolutions",
    "Conv3DBackpropInputV2": "TensorFlow has no INT8 kernel for transposed convolutions",
    "BatchMatMul": "TensorFlow has no INT8 kernel for products of two activations",
    "BatchMatMulV2": "TensorFlow has no INT8 kernel for products of two activations",
    "BatchMatMulV3": "TensorFlow has no INT8 kernel for products of two activations",
    "Einsum": "TensorFlow has no INT8 kernel for this contraction",
    "SparseTensorDenseMatMul": "TensorFlow has no INT8 kernel for it",
    "CudnnRNNV3": "TensorFlow has no INT8 kernel for it",
    "BlockLSTMV2": "TensorFlow has no INT8 kernel for it",
    "LSTMBlockCell": "TensorFlow has no INT8 kernel for it",
    "GRUBlockCell": "TensorFlow has no INT8 kernel for it",
    "Softmax": "INT8 would be slower than FP32",
    "FusedBatchNorm": "no convolution stands before or behind it to fold it into",
    "FusedBatchNormV2": "no convolution stands before or behind it to fold it into",
    "FusedBatchNormV3": "no convolution stands before or behind it to fold it into",
    "MaxPoolV2": "its window is not a constant",
    "MaxPool3D": "TensorFlow has no INT8 kernel for it",
    "AvgPool3D": "TensorFlow has no INT8 kernel for it",
}
CALLS = (
    "PartitionedCall",
    "StatefulPartitionedCall",
    "While",
    "StatelessWhile",
    "If",
    "StatelessIf",
)
QUANTIZED = ("QuantizeV2", "Dequantize", "Requantize", "FakeQuantWithMinMaxVars")


def weight_bits(kind: str, target: Target) -> int:
    """Bits of weights in use: 7 where 8 would overflow the CPU's 16-bit sums."""
    if kind == "DepthwiseConv2dNative":  # its sums are short and kept in 32 bits
        return 8
    if target == "this":
        return 7 if saturates() else 8
    return 7 if target == "avx2" else 8


@lru_cache
def saturates() -> bool:
    """Run the worst case through the real kernel and compare with the truth."""
    rows, columns = 256, 64
    nodes = [
        make_const("a", np.full((32, rows), 255, np.uint8), tf.quint8),
        make_const("b", np.full((rows, columns), 127, np.int8), tf.qint8),
        make_const("bias", np.zeros(columns, np.float32)),
        make_const("zero", np.float32(0)),
        make_const("a_max", np.float32(255)),
        make_const("b_min", np.full(columns, -127, np.float32)),
        make_const("b_max", np.full(columns, 127, np.float32)),
        make_node(
            "_QuantizedMatMul",
            "product",
            ["a", "b", "bias", "zero", "a_max", "b_min", "b_max"],
            Tdevice_inputs=[tf.quint8, tf.qint8, tf.float32],
            Thost_inputs=[tf.float32] * 4,
            Tdevice_outputs=[tf.float32],
            Thost_outputs=[],
            T1=tf.quint8,
            T2=tf.qint8,
            fused_ops=["BiasAdd", "Dequantize"],
        ),
    ]
    graph_def = GraphDef()
    graph_def.node.extend(nodes)
    graph_def.versions.producer = tf.compat.v1.GRAPH_DEF_VERSION
    _, session = open_session(graph_def)
    with session:
        product = session.run("product:0")
    worst = float(np.abs(product / (255.0 * 127.0 * rows) - 1.0).max())
    logger.info("worst case of 8-bit weights is off by %.3f", worst)
    return worst > 0.02


def has_bfloat16() -> bool:
    """Does this CPU multiply bfloat16? FORCE_BF16=1, of the original, says so without asking it."""
    return os.environ.get("FORCE_BF16") == "1" or this_cpu().has("avx512_bf16", "amx_bf16")


def compute_choices(kind: str, target: Target) -> tuple[OpConfig, ...]:
    """The most wanted first: zero point, per channel, minmax."""
    bits = weight_bits(kind, target)
    halves = (BF16,) if has_bfloat16() else ()
    return (
        *(
            OpConfig(
                TensorConfig(dtype, scheme, "per_tensor", algorithm, 8),
                TensorConfig("int8", "sym", granularity, "minmax", bits),
                "static",
            )
            for granularity in ("per_channel", "per_tensor")
            for dtype, scheme, algorithm in ACTIVATIONS
        ),
        *halves,
        FP32,
    )


def follower_choices() -> tuple[OpConfig, ...]:
    """Followers take the form of their neighbours, whatever that is."""
    return (
        *(
            OpConfig(TensorConfig(dtype, scheme, "per_tensor", algorithm, 8), None, "static")
            for dtype, scheme, algorithm in ACTIVATIONS
        ),
        FP32,
    )
