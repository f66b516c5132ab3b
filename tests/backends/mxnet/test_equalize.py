"""Evening out channels: the same function to the last bit, and far less noise in INT8."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("mxnet")

import mxnet as mx

from backends.mxnet.nets import Tuple, with_params
from lpot.backends.mxnet import MxnetBackend
from lpot.backends.mxnet.equalize import equalize, find_pairs
from lpot.backends.mxnet.graph import Graph
from lpot.core.numerics.rounding import sqnr
from lpot.core.recipe import Recipe

SHAPE = (8, 8, 6, 6)


def conv(data: Any, name: str, width: int = 8, **options: Any) -> Any:
    return mx.sym.Convolution(data, name=name, num_filter=width, kernel=(1, 1), **options)


def prelu(data: Any, name: str) -> Any:
    return mx.sym.LeakyReLU(data, act_type="prelu", name=name)


def relu(data: Any) -> Any:
    return mx.sym.Activation(data, act_type="relu")


def plain() -> Any:
    return conv(relu(conv(mx.sym.var("data"), "one")), "two")


def normed(fix_gamma: bool) -> Any:
    first = conv(mx.sym.var("data"), "one", no_bias=True)
    return conv(prelu(mx.sym.BatchNorm(first, name="norm", fix_gamma=fix_gamma), "slope"), "two")


def depthwise() -> Any:
    first = prelu(conv(mx.sym.var("data"), "one"), "slope1")
    second = conv(first, "two", num_group=8)
    return conv(relu(second), "three")


def dense() -> Any:
    pooled = mx.sym.Pooling(relu(conv(mx.sym.var("data"), "one")), pool_type="avg", kernel=(6, 6))
    hidden = mx.sym.FullyConnected(mx.sym.Flatten(pooled), name="fc1", num_hidden=8)
    return mx.sym.FullyConnected(relu(hidden), name="fc2", num_hidden=8)


def torn(symbol: Any, first: str, second: str, axis: int) -> Tuple:
    """Every other channel between these two layers a thousand times the others."""
    _, args, auxs = with_params(symbol, data=SHAPE)
    scales = np.where(np.arange(8) % 2, 1024.0, 1.0).astype(np.float32)
    for name in (f"{first}_weight", f"{first}_bias", f"{first}_gamma", f"{first}_beta"):
        if name in args:
            shape = [-1] + [1] * (args[name].ndim - 1)
            args[name] = args[name] * mx.nd.array(scales.reshape(shape))
    weight = args[f"{second}_weight"]
    shape = [-1 if index == axis else 1 for index in range(weight.ndim)]
    args[f"{second}_weight"] = weight / mx.nd.array(scales.reshape(shape))
    return symbol, args, auxs


NETS = {
    "plain": (plain(), "one", "two", 1),
    "norm": (normed(False), "norm", "two", 1),
    "depthwise": (depthwise(), "one", "two", 0),
    "dense": (dense(), "fc1", "fc2", 1),
}


@pytest.mark.parametrize("name", NETS)
def test_a_torn_net_is_mended(name: str) -> None:
    backend = MxnetBackend()
    model = backend.load(torn(*NETS[name]))
    data = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    (wanted,) = backend.run(model, {"data": data})
    (even,) = type(model)(backend, model.even).run({"data": data})
    np.testing.assert_array_equal(wanted, even)
    observed = backend.observe(model, [{"data": data}])[0]
    low = backend.inspect(model).low()
    built = backend.build(model, Recipe({op.key: op.choices[0] for op in low}), observed)
    assert sqnr(wanted, backend.run(built, {"data": data})[0]) > 33  # at most 25 without


def test_a_fixed_gamma_is_freed() -> None:
    """MXNet takes it for 1, whatever its value says."""
    backend = MxnetBackend()
    symbol, args, auxs = with_params(normed(True), data=SHAPE)
    args["norm_beta"] = args["norm_beta"] * mx.nd.array(np.geomspace(1, 4096, 8))
    args["two_weight"] = args["two_weight"] * mx.nd.array(
        np.geomspace(1, 1 / 4096, 8).reshape(1, 8, 1, 1)
    )
    model = backend.load((symbol, args, auxs))
    data = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    assert model.even is not model.network
    (wanted,) = backend.run(model, {"data": data})
    np.testing.assert_array_equal(wanted, type(model)(backend, model.even).run({"data": data})[0])


def shared() -> Any:
    weight = mx.sym.var("shared_weight")
    first = conv(mx.sym.var("data"), "one", weight=weight)
    return conv(relu(first), "two", weight=weight)


def seen_twice() -> Any:
    first = relu(conv(mx.sym.var("data"), "one"))
    return conv(first, "two") + first


def an_output() -> Any:
    first = relu(conv(mx.sym.var("data"), "one"))
    return mx.sym.Group([conv(first, "two"), first])


def sigmoid() -> Any:
    first = mx.sym.Activation(conv(mx.sym.var("data"), "one"), act_type="sigmoid")
    return conv(first, "two")


def grouped() -> Any:
    return conv(relu(conv(mx.sym.var("data"), "one", num_group=2)), "two", num_group=2)


@pytest.mark.parametrize("make", [shared, seen_twice, an_output, sigmoid, grouped])
def test_what_may_not_be_touched(make: Any) -> None:
    symbol = make()
    assert not list(find_pairs(Graph.of(symbol), symbol.list_arguments()))


def test_an_even_net_is_left_alone() -> None:
    model = MxnetBackend().load(with_params(plain(), data=SHAPE))
    assert equalize(model.network) is model.network
