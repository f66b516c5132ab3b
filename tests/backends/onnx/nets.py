"""Small ONNX nets with seeded weights, for the backend's own tests."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """Collects nodes and weights; `make` gives the ModelProto."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def weight(self, name: str, shape: tuple[int, ...], scale: float | None = None) -> str:
        fan = int(np.prod(shape[1:])) or 1
        factor = scale if scale is not None else 1.0 / np.sqrt(fan)
        self.weights[name] = (self.rng.standard_normal(shape) * factor).astype(np.float32)
        return name

    def add(self, kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def conv(self, x: str, name: str, shape: tuple[int, ...], **attributes: object) -> str:
        inputs = [x, self.weight(f"{name}.w", shape), self.weight(f"{name}.b", (shape[0],), 0.1)]
        pads = [shape[2] // 2] * 4
        return self.add("Conv", inputs, name, kernel_shape=list(shape[2:]), pads=pads, **attributes)

    def make(
        self, inputs: dict[str, list], outputs: list[str], opset: int = 17, kind: int = 1
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def cnn(opset: int = 17) -> onnx.ModelProto:
    """Conv with BN, a residual block, a depthwise conv, pooling, a classifier."""
    net = Net()
    x = net.conv("x", "stem", (8, 3, 3, 3))
    scale = np.abs(net.rng.standard_normal(8)).astype(np.float32) + 0.5
    net.weights |= {"bn.s": scale, "bn.b": scale * 0, "bn.m": scale * 0, "bn.v": scale}
    x = net.add("BatchNormalization", [x, "bn.s", "bn.b", "bn.m", "bn.v"], "bn")
    x = net.add("Relu", [x], "relu0")
    y = net.add("Relu", [net.conv(x, "block.conv1", (8, 8, 3, 3))], "relu1")
    y = net.conv(y, "block.conv2", (8, 8, 3, 3))
    x = net.add("Relu", [net.add("Add", [x, y], "block.add")], "relu2")
    x = net.add("Relu", [net.conv(x, "depthwise", (8, 1, 3, 3), group=8)], "relu3")
    x = net.add("Relu", [net.conv(x, "pointwise", (16, 8, 1, 1))], "relu4")
    x = net.add("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    x = net.add("Relu", [net.conv(x, "last", (16, 16, 3, 3))], "relu5")
    x = net.add("Flatten", [net.add("GlobalAveragePool", [x], "mean")], "flat")
    inputs = [x, net.weight("fc.w", (10, 16)), net.weight("fc.b", (10,))]
    net.add("Gemm", inputs, "fc", transB=1)
    return net.make({"x": ["n", 3, 16, 16]}, ["fc"], opset)


def mlp() -> onnx.ModelProto:
    """Two MatMuls with a bias and GELU-like curve, as in a transformer's feed-forward part."""
    net = Net(1)
    x = net.add(
        "Add",
        [net.add("MatMul", ["x", net.weight("w1", (32, 64))], "up"), net.weight("b1", (64,))],
        "b",
    )
    x = net.add("Tanh", [x], "curve")
    x = net.add("MatMul", [x, net.weight("w2", (64, 32))], "down")
    net.add("Add", [x, "x"], "residual")
    return net.make({"x": ["n", "t", 32]}, ["residual"])


def images(count: int = 4, size: int = 8, seed: int = 0) -> list[tuple[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((size, 3, 16, 16)).astype(np.float32),) for _ in range(count)]


def tokens(count: int = 4, size: int = 8, seed: int = 0) -> list[tuple[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((size, 5, 32)).astype(np.float32),) for _ in range(count)]
