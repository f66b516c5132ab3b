"""Graphs of many ops: loading and inspecting them is work in their number, not in its square."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from lpot.backends.onnx import OnnxBackend
from lpot.backends.onnx.streams import find_streams

WIDTH = 4


class Chain:
    """Matrix products of one width, in a row or around a residual stream."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.random = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str) -> str:
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name))
        return name

    def product(self, x: str) -> str:
        tear = np.exp2(self.random.integers(-4, 5, WIDTH))
        weight = (self.random.standard_normal((WIDTH, WIDTH)) * tear).astype(np.float32)
        self.weights.append(numpy_helper.from_array(weight, f"w{len(self.nodes)}"))
        return self.op("MatMul", x, self.weights[-1].name)

    def make(self, output: str) -> ModelProto:
        ends = [helper.make_tensor_value_info(name, 1, ["n", WIDTH]) for name in ("x", output)]
        graph = helper.make_graph(self.nodes, "chain", ends[:1], ends[1:], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def in_a_row(count: int) -> ModelProto:
    """As many streams as layers."""
    chain, x = Chain(), "x"
    while len(chain.nodes) < count:
        x = chain.op("Relu", chain.product(x))
    return chain.make(x)


def residual(count: int) -> ModelProto:
    """One stream through all of it, with gates."""
    chain = Chain()
    x = chain.product("x")
    while len(chain.nodes) < count:
        inner = chain.product(chain.op("Relu", chain.product(x)))
        x = chain.op("Add", x, chain.op("Mul", inner, "x"))
    return chain.make(chain.product(x))


def refused(count: int) -> ModelProto:
    """Nothing but fixed tensors."""
    chain, x = Chain(), "x"
    while len(chain.nodes) < count:
        x = chain.product(x)
        x = chain.op("Mul", x, chain.op("Sigmoid", x))
    return chain.make(x)


def calls(model: ModelProto) -> int:
    backend, profile = OnnxBackend(), cProfile.Profile()
    profile.enable()
    backend.inspect(backend.load(model))
    profile.disable()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize("net", [in_a_row, residual, refused])
def test_twice_the_ops_are_twice_the_work(net: Callable[[int], ModelProto]) -> None:
    calls(net(20))  # what is done once only is done
    assert calls(net(800)) < 2.2 * calls(net(400))


def test_a_residual_stream_of_many_layers_is_one() -> None:
    model = OnnxBackend().load(residual(400))
    largest = max(find_streams(model.prepared).streams, key=lambda stream: len(stream.makers))
    assert len(largest.makers) > 70
    assert len(largest.readers) > 70
