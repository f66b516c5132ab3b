"""What this runtime and CPU can do: which ops, which ranges, and the self-test that decides."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import onnxruntime as ort
from onnx import NodeProto, TensorProto, helper

from lpot.backends.onnx.graph import to_tensor
from lpot.core.backend import Target
from lpot.core.cpu import TOLERANCE
from lpot.core.recipe import FP32, OpConfig, TensorConfig

logger = logging.getLogger(__name__)

# Ops that do the arithmetic and pay for themselves alone.
COMPUTE = ("Conv", "ConvTranspose", "MatMul", "Gemm")
# Ops that look rows up in a constant: their tables are stored in INT8, what they give is float.
TABLES = ("Gather",)
# Ops whose kernels quantize what they read while running: nothing around them is touched.
RECURRENT = ("LSTM",)
# Ops that keep or lose time: low precision only between low-precision neighbours.
ARITHMETIC = ("Add", "Mul", "Concat", "AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid")
# Ops that move int8 values without changing them: the output has the input's scale.
MOVING = (
    *("MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"),
    *("Resize", "Slice", "DepthToSpace"),
)
# Ops swallowed by the quantization that follows them.
CLAMPING = ("Relu", "Clip")
FOLLOWERS = (*ARITHMETIC, *MOVING, *CLAMPING)


@dataclass(frozen=True)
class Kernels:
    """What a runtime's INT8 products do besides multiplying; ONNX Runtime's by default."""

    float_output: tuple[str, ...] = ("MatMul", "Gemm")  # kinds that need no quantized output
    # Kinds that are computed on the sums before these are rounded, SiLU's two ops among them.
    activations: tuple[str, ...] = ()
    silu: str = "QuickGelu"  # its op for a SiLU in floats, quicker than Sigmoid and Mul in INT8


NEVER = {
    "Softmax": "INT8 Softmax runs at a fifth of FP32's speed",
    "LayerNormalization": "INT8 LayerNorm is slower than FP32",
    "SkipLayerNormalization": "INT8 LayerNorm is slower than FP32",
    "Gelu": "INT8 Gelu is slower than FP32",
    "GRU": "ONNX Runtime has no INT8 kernel for it",
    "RNN": "ONNX Runtime has no INT8 kernel for it",
}
ALGORITHMS = ("minmax", "percentile", "kl", "mse")


def bits_for(worst_error: float, target: Target) -> int:
    """Weight bits in use: 7 where 8 would overflow the CPU's 16-bit sums."""
    if target == "this":
        return 7 if worst_error > TOLERANCE else 8
    return 7 if target == "avx2" else 8


def saturates(kind: str) -> bool:
    """Is the worst case of one op wrong by more than rounding?"""
    return worst_error(kind) > TOLERANCE


def worst_error(kind: str) -> float:
    """How far the largest possible sum of such an op is off here, relative to the truth."""
    return _worst_error("Conv" if kind.startswith("Conv") else "MatMul")


@lru_cache
def _worst_error(kind: str) -> float:
    """Run the worst case through the real kernels."""
    model, data, truth = worst_case(kind)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": data})
    worst = float(np.abs(result / truth - 1.0).max())
    logger.info("%s: worst case of 8 bits is off by %.3f", kind, worst)
    return worst


def worst_case(kind: str) -> tuple[bytes, np.ndarray, float]:
    """A model of one Conv or MatMul, its input, and each of its outputs in truth."""
    rows, columns = 64, 16
    data = np.full((1, rows), 255, np.uint8)
    weight = np.full((rows, columns), 127, np.int8)
    if kind == "Conv":
        data = data.reshape(1, rows, 1, 1).repeat(4, 2).repeat(4, 3)
    model = _worst_conv(rows, columns) if kind == "Conv" else _worst_matmul(weight)
    return model, data, 255.0 * 127.0 * rows


def _worst_matmul(weight: np.ndarray) -> bytes:
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "one", "zero_u8"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "one", "zero_s8"], ["wf"]),
        helper.make_node("MatMul", ["xf", "wf"], ["y"]),
    ]
    return _probe_model(nodes, weight, [1, weight.shape[0]])


def _worst_conv(rows: int, columns: int) -> bytes:
    weight = np.full((columns, rows, 1, 1), 127, np.int8)
    # The output is scaled so that the truth is the largest code: rounding stays below 0.4 %.
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "one", "zero_u8"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "one", "zero_s8"], ["wf"]),
        helper.make_node("Conv", ["xf", "wf"], ["c"], kernel_shape=[1, 1]),
        helper.make_node("QuantizeLinear", ["c", "out", "zero_u8"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "out", "zero_u8"], ["y"]),
    ]
    return _probe_model(nodes, weight, [1, rows, 4, 4], out=127.0 * rows)


def _probe_model(
    nodes: list[NodeProto], weight: np.ndarray, shape: list[int], out: float = 1.0
) -> bytes:
    constants = {
        "w": weight,
        "one": np.float32(1),
        "out": np.float32(out),
        "zero_u8": np.uint8(0),
        "zero_s8": np.int8(0),
    }
    graph = helper.make_graph(
        nodes,
        "probe",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [to_tensor(name, np.asarray(value)) for name, value in constants.items()],
    )
    opset = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return bytes(model.SerializeToString())


def static_choices(per_channel: bool, bits: int) -> tuple[OpConfig, ...]:
    """Static configs, the most wanted first: per channel, minmax."""
    granularities = ("per_channel", "per_tensor") if per_channel else ("per_tensor",)
    return tuple(
        OpConfig(
            TensorConfig("uint8", "asym", "per_tensor", algorithm, 8),
            TensorConfig("int8", "sym", granularity, "minmax", bits),
            "static",
        )
        for granularity in granularities
        for algorithm in ALGORITHMS
    )


def dynamic_choices(per_channel: bool, bits: int) -> tuple[OpConfig, ...]:
    granularities = ("per_channel", "per_tensor") if per_channel else ("per_tensor",)
    return tuple(
        OpConfig(
            TensorConfig("uint8", "asym", "per_tensor", "minmax", 8),
            TensorConfig("int8", "sym", granularity, "minmax", bits),
            "dynamic",
        )
        for granularity in granularities
    )


def table_choices() -> tuple[OpConfig, ...]:
    """Rows have a scale each. Nothing is multiplied, so that 8 bits overflow nowhere."""
    rows = TensorConfig("int8", "sym", "per_channel", "minmax", 8)
    return OpConfig(FP32.activation, rows, "dynamic"), FP32


def follower_choices() -> tuple[OpConfig, ...]:
    return (
        *(
            OpConfig(TensorConfig("uint8", "asym", "per_tensor", algorithm, 8), None, "static")
            for algorithm in ALGORITHMS
        ),
        FP32,
    )
