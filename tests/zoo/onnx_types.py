"""Models of other types than float32, and of unusual sizes: none, scalars, unknown ranks; text."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnx_models import Net
from zoo.onnx_parts import Odd, dense, value


def in_type(kind: int, dtype: Any) -> ModelProto:
    net = Net()
    x = net.input("x", ["n", 16], kind)
    raw = net.random.standard_normal((16, 16)) / 4
    net.weights.append(
        helper.make_tensor("w", kind, [16, 16], raw.ravel().tolist())
        if dtype is None
        else numpy_helper.from_array(raw.astype(dtype), "w")
    )
    return net.model(net.op("MatMul", [x, "w"]), kind=kind)


def double() -> ModelProto:
    return in_type(TensorProto.DOUBLE, np.float64)


def half() -> ModelProto:
    return in_type(TensorProto.FLOAT16, np.float16)


def bfloat16() -> ModelProto:
    net = Net()
    x = net.op("Cast", [net.input("x", ["n", 16])], to=TensorProto.BFLOAT16)
    raw = (net.random.standard_normal((16, 16)) / 4).ravel().tolist()
    net.weights.append(helper.make_tensor("w", TensorProto.BFLOAT16, [16, 16], raw))
    wide = net.op("Cast", ["w"], to=TensorProto.FLOAT)
    back = net.op("Cast", [x], to=TensorProto.FLOAT)
    return net.model(net.op("MatMul", [back, wide]))


def zero_rows() -> ModelProto:
    """Detection-like: what is left behind a filter may be nothing."""
    net = Net()
    hidden = dense(net, net.input("x", ["n", 16]))
    bound = net.const("bound", np.float32(1e9))
    most = net.op("ReduceMax", [hidden], axes=[1], keepdims=0)
    chosen = net.op("Compress", [hidden, net.op("Greater", [most, bound])], axis=0)
    return net.model(dense(net, chosen), hidden)


def zero_channels() -> ModelProto:
    """A weight of no columns."""
    net = Net()
    x = net.input("x", ["n", 16])
    net.const("none", np.zeros((16, 0), np.float32))
    both = net.op("Concat", [dense(net, x), net.op("MatMul", [x, "none"])], axis=1)
    return net.model(dense(net, both))


def scalar_input() -> ModelProto:
    """A factor without dimensions beside the picture."""
    net = Net()
    x = net.op("Mul", [net.input("x", ["n", 16]), net.input("factor", [])])
    return net.model(dense(net, net.op("Relu", [dense(net, x)])))


def one_scalar_in() -> ModelProto:
    """Nothing but a 0-d input."""
    net = Net()
    wide = net.op("Expand", [net.input("x", []), net.const("shape", np.array([4, 16]))])
    return net.model(dense(net, wide))


def no_input() -> ModelProto:
    net = Net()
    rows = net.op("ConstantOfShape", [net.const("shape", np.array([4, 16]))])
    return net.model(dense(net, net.op("Add", [rows, net.const("half", np.float32(0.5))])))


def no_rank() -> ModelProto:
    """An input of unknown rank."""
    net = Net()
    net.inputs.append(value("x", TensorProto.FLOAT, None))
    return net.model(dense(net, net.op("Relu", [dense(net, "x")])))


def vector_input() -> ModelProto:
    """A product of a vector: no batch at all."""
    net = Net()
    return net.model(dense(net, net.op("Relu", [dense(net, net.input("x", [16]))])))


def strings() -> ModelProto:
    """Labels as text behind an ArgMax."""
    net = Net()
    scores = dense(net, net.input("x", ["n", 16]))
    best = net.op("ArgMax", [scores], axis=1, keepdims=0)
    words = np.array([f"label {i}".encode() for i in range(16)], object)
    net.weights.append(helper.make_tensor("words", TensorProto.STRING, [16], words.tolist()))
    model = net.model(net.op("Gather", ["words", best]), scores)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    return model


def string_input() -> ModelProto:
    """Text goes in, next to numbers."""
    net = Net()
    text = net.input("text", ["n"], TensorProto.STRING)
    net.op("LabelEncoder", [text], "code", domain="ai.onnx.ml", keys_strings=["a", "b"],
           values_floats=[0.5, 1.5], default_float=0.0)  # fmt: skip
    column = net.op("Unsqueeze", ["code", net.const("axis", np.array([1]))])
    model = net.model(dense(net, net.op("Add", [net.input("x", ["n", 16]), column])))
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return model


def complex_output() -> ModelProto:
    """A Fourier transform in front, as audio models have it."""
    net = Net()
    x = net.op("Unsqueeze", [net.input("x", ["n", 16]), net.const("last", np.array([2]))])
    spectrum = net.op("DFT", [x], axis=1)
    return net.model(
        dense(net, net.op("Reshape", [spectrum, net.const("to", np.array([-1, 32]))]), 32)
    )


MAKERS: tuple[Odd, ...] = (
    *(double, half, bfloat16, zero_rows, zero_channels, scalar_input, one_scalar_in, no_input),
    *(no_rank, vector_input, strings, string_input, complex_output),
)
