"""Small MXNet models and data for the tests of this room."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon import nn

Tuple = tuple[Any, dict[str, Any], dict[str, Any]]


class Residual(nn.HybridBlock):
    """Two convolutions with batch norms, and a shortcut."""

    def __init__(self, channels: int, shortcut: bool = False, **options: Any) -> None:
        super().__init__(**options)
        with self.name_scope():
            self.conv1 = nn.Conv2D(channels, 3, padding=1, use_bias=False)
            self.norm1 = nn.BatchNorm()
            self.conv2 = nn.Conv2D(channels, 3, padding=1, use_bias=False)
            self.norm2 = nn.BatchNorm()
            self.bridge = nn.Conv2D(channels, 1) if shortcut else None

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        inner = F.Activation(self.norm1(self.conv1(x)), act_type="relu")
        side = x if self.bridge is None else self.bridge(x)
        return F.Activation(self.norm2(self.conv2(inner)) + side, act_type="relu")


def cnn(prefix: str = "net_") -> nn.HybridSequential:
    """Convolutions, batch norms, both kinds of residual block, pooling and dense layers."""
    mx.random.seed(1)
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Conv2D(16, 3, padding=1, activation="relu"), Residual(16))
        net.add(Residual(32, shortcut=True), nn.MaxPool2D(2), nn.Conv2D(32, 1), nn.LeakyReLU(0.1))
        net.add(nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(32, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier(magnitude=2.5))
    net.hybridize()
    net(mx.nd.zeros((1, 1, 8, 8)))
    return net


def images(count: int = 3, size: int = 8) -> list[tuple[np.ndarray]]:
    random = np.random.default_rng(0)
    return [(random.normal(size=(size, 1, 8, 8)).astype(np.float32),) for _ in range(count)]


def with_params(symbol: Any, seed: int = 0, **shapes: tuple[int, ...]) -> Tuple:
    """A symbol with made-up parameters of the shapes that these inputs ask for."""
    random = np.random.default_rng(seed)
    args, _, auxs = symbol.infer_shape(**shapes)
    made = {}
    for name, shape in zip(symbol.list_arguments(), args, strict=True):
        if name not in shapes and not name.endswith("label"):
            made[name] = mx.nd.array(random.normal(0, 0.3, shape))
    states = {
        name: mx.nd.array(random.uniform(0.5, 1.5, shape))
        for name, shape in zip(symbol.list_auxiliary_states(), auxs, strict=True)
    }
    return symbol, made, states


def conv(data: Any, name: str, kernel: tuple[int, ...] = (3, 3), **options: Any) -> Any:
    pad = tuple(size // 2 for size in kernel)
    filters = options.pop("num_filter", 8)
    return mx.sym.Convolution(
        data, name=name, num_filter=filters, kernel=kernel, pad=pad, **options
    )


def relu(data: Any, name: str) -> Any:
    return mx.sym.Activation(data, act_type="relu", name=name)


def dense(data: Any, name: str, width: int = 16, **options: Any) -> Any:
    return mx.sym.FullyConnected(data, name=name, num_hidden=width, **options)


def mlp() -> Tuple:
    """Two inputs, three dense layers, a softmax."""
    left = relu(dense(mx.sym.var("left"), "first"), "bend")
    both = mx.sym.concat(left, dense(mx.sym.var("right"), "second", no_bias=True), dim=1)
    symbol = mx.sym.softmax(dense(both, "last", 4), name="prob")
    return with_params(symbol, left=(1, 32), right=(1, 24))


def pairs(count: int = 3, size: int = 8) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    shapes = {"left": (size, 32), "right": (size, 24)}
    return [
        {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(count)
    ]
