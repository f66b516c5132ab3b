"""What MXNet's oneDNN kernels and this CPU can do: which ops, which ranges, and the self-test."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from lpot.backends.mxnet.runtime import BACKEND, CPU, mx, quantization
from lpot.core.backend import Target
from lpot.core.recipe import FP32, OpConfig, TensorConfig

logger = logging.getLogger(__name__)

# Fused nodes, and the op of the user's graph that each is built around.
FUSED: Mapping[str, str] = {
    "_sg_mkldnn_conv": "Convolution",
    "_sg_mkldnn_fully_connected": "FullyConnected",
}
COMPUTE = tuple(FUSED.values())
# Ops that pass INT8 on where it arrives; MXNet leaves them in FP32 elsewhere.
FOLLOWERS = ("Pooling", "Flatten", "Activation", "elemwise_add", "Concat", "BatchNorm")

NEVER: Mapping[str, str] = {
    "Deconvolution": "oneDNN's INT8 kernel for it is not in MXNet",
    "RNN": "MXNet's INT8 RNN is an unfinished kernel: it stays in FP32",
    "Embedding": "a table look-up: INT8 would save no time",
    "softmax": "MXNet has no INT8 kernel for it",
    "LayerNorm": "MXNet has no INT8 kernel for it",
    "batch_dot": "both sides are activations: MXNet has no INT8 kernel for it",
    "dot": "MXNet has an INT8 kernel for FullyConnected only",
    "elemwise_mul": "INT8 products of two activations lose more than they save",
}
ALGORITHMS = ("minmax", "percentile", "kl", "mse")
WORST = 64  # products in one sum of the self-test
TOLERANCE = 0.05  # rounding alone stays below 1 %; an overflow halves the sum


def reduced(kind: str, target: Target) -> bool:
    """Must this kind of op stay below 8 bits, lest the CPU's 16-bit sums overflow?"""
    return saturates(kind) if target == "this" else target == "avx2"


def saturates(kind: str) -> bool:
    """Is the worst case of one op wrong by more than rounding?"""
    return worst_error(kind) > TOLERANCE


@lru_cache
def worst_error(kind: str) -> float:
    """Run the worst case of one op, unsigned and signed, through the real kernels."""
    worst = max(_error(kind, lowest) for lowest in (0.0, -1.0))
    logger.info("%s: worst case of 8 bits is off by %.3f", kind, worst)
    return worst


def _error(kind: str, lowest: float) -> float:
    data = mx.sym.var("data")
    if kind == "Convolution":
        op = mx.sym.Convolution(data, name="op", num_filter=16, kernel=(1, 1), no_bias=True)
        values, weight = np.ones((1, WORST, 4, 4)), np.ones((16, WORST, 1, 1))
    else:
        op = mx.sym.FullyConnected(data, name="op", num_hidden=16, no_bias=True)
        values, weight = np.ones((4, WORST)), np.ones((16, WORST))
    fused = op.get_backend_symbol(BACKEND)
    drawn, wanted = quantization._quantize_symbol(
        fused, CPU, quantized_dtype="auto", quantize_granularity="channel-wise"
    )
    ranges = {name: (lowest * WORST, float(WORST)) for name in wanted}
    ranges["data"] = (lowest, 1.0)
    built = quantization._calibrate_quantized_sym(drawn, ranges).get_backend_symbol(BACKEND)
    args = {"data": mx.nd.array(values), "op_weight": mx.nd.array(weight)}
    result = built.bind(CPU, args, grad_req="null").forward(is_train=False)[0].asnumpy()
    return float(np.abs(result / WORST - 1.0).max())


def compute_choices(kind: str, target: Target, depthwise: bool = False) -> tuple[OpConfig, ...]:
    """Static configs, the most wanted first, and FP32 last.

    The kernels take the scale of a convolution's weights per channel and nothing else. Where sums
    overflow, a convolution gives up one bit of its activations: its weights are quantized inside
    the kernel. FullyConnected shifts signed activations, which one bit would not help: it gives up
    one of its weights, which only the per-tensor form takes ready-made.
    """
    if kind == "Convolution":
        bits = 7 if reduced(kind, target) and not depthwise else 8
        return (*_static("per_channel", bits, 8), FP32)
    if reduced(kind, target):
        return (*_static("per_tensor", 8, 7), FP32)
    return (*_static("per_channel", 8, 8), *_static("per_tensor", 8, 8), FP32)


def _static(granularity: str, bits: int, weight_bits: int) -> tuple[OpConfig, ...]:
    """`int8` stands for MXNet's choice: unsigned for tensors without negatives."""
    return tuple(
        OpConfig(
            TensorConfig("int8", "sym", "per_tensor", algorithm, bits),
            TensorConfig("int8", "sym", granularity, "minmax", weight_bits),
            "static",
        )
        for algorithm in ALGORITHMS
    )


def follower_choices() -> tuple[OpConfig, ...]:
    return (
        *(
            OpConfig(TensorConfig("int8", "sym", "per_tensor", algorithm, 8), None, "static")
            for algorithm in ALGORITHMS
        ),
        FP32,
    )
