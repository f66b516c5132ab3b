"""What TensorFlow and this CPU can do: choices for each kind of op, by self-test."""

from __future__ import annotations

import os

from lpot.backends.tensorflow.saturation import FUSED, saturates
from lpot.core.backend import Target
from lpot.core.cpu import this_cpu
from lpot.core.recipe import FP32, OpConfig, TensorConfig

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
    "FusedBatchNorm": "there is no convolution before or after it to fold it into",
    "FusedBatchNormV2": "there is no convolution before or after it to fold it into",
    "FusedBatchNormV3": "there is no convolution before or after it to fold it into",
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
    kind = kind if kind in FUSED else "MatMul"
    if target == "this":
        return 7 if saturates(kind) else 8
    # The depthwise kernel's sums are short and kept in 32 bits.
    return 7 if target == "avx2" and kind != "DepthwiseConv2dNative" else 8


def has_bfloat16() -> bool:
    """Is bfloat16 offered? Where the CPU multiplies it, or where FORCE_BF16=1, of the original."""
    return os.environ.get("FORCE_BF16") == "1" or multiplies_bfloat16()


def multiplies_bfloat16() -> bool:
    """Elsewhere TensorFlow emulates it: slower than FP32, and no gain."""
    return this_cpu().has("avx512_bf16", "amx_bf16")


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
