"""Biases and spreads corrected after rounding: exact weights stay, means come right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backends.onnx.nets import Net, images
from lpot.backends.onnx import OnnxBackend
from lpot.backends.onnx.passes.correct_bias import bias_shift
from lpot.backends.onnx.run import session
from lpot.core.ptq.bias_correction import corrected_scale
from lpot.core.recipe import Recipe
from lpot.core.repairs import NONE, Repairs
from lpot.core.space import restrict
from search.tear import Loom

BACKEND = OnnxBackend()


def levels() -> int:
    """The largest step of a weight: fewer where this CPU's kernels would overflow."""
    net = Loom()
    net.gemm("x", "op", 4, 4)
    (info,) = BACKEND.inspect(BACKEND.load(net.make({"x": ["n", 4]}, ["op"]))).low()
    weight = info.choices[0].weight
    assert weight is not None and weight.bits is not None
    return 2 ** (weight.bits - 1) - 1


def layer(kind: str, exact: bool) -> tuple[Net, str, dict[str, list]]:
    """One layer; `exact` weights are whole steps of their own scale."""
    net = Loom(5)
    if kind == "Gemm":
        name, inputs = net.gemm("x", "op", 12, 6), {"x": ["n", 12]}
    else:
        group = 4 if kind == "grouped" else 1
        shape = (8, 8 // group, 3, 3)
        name, inputs = net.conv("x", "op", shape, group=group), {"x": ["n", 8, 7, 7]}
    if exact:
        most = levels()
        steps = np.clip(np.rint(net.weights["op.w"] * most / 2), -most, most)
        steps.reshape(len(steps), -1)[:, 0] = most
        net.weights["op.w"] = (steps / (most + 1)).astype(np.float32)
    return net, name, inputs


def data(inputs: dict[str, list]) -> list[tuple[np.ndarray]]:
    rng = np.random.default_rng(1)
    shape = (64, *inputs["x"][1:])
    # A mean far from zero is what makes rounding errors add up.
    return [(rng.standard_normal(shape).astype(np.float32) * 0.3 + 2.0,) for _ in range(3)]


def means(kind: str, exact: bool, repairs: Repairs = NONE) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each output channel: of FP32, and of INT8 with these repairs."""
    net, name, inputs = layer(kind, exact)
    if kind != "Gemm":  # zeros at the border are not what the calibration pass saw
        (pads,) = (found for found in net.nodes[-1].attribute if found.name == "pads")
        pads.ints[:] = [0, 0, 0, 0]
    model = BACKEND.load(net.make(inputs, [name]))
    batches = data(inputs)
    seen = BACKEND.observe(model, batches, (0,))[0]
    recipe = restrict(BACKEND.inspect(model), ()).default()
    low = BACKEND.build(model, replace(recipe, repairs=repairs), seen)
    found = []
    for one in (model, low):
        outputs = np.concatenate([BACKEND.run(one, batch)[0] for batch in batches])
        found.append(outputs.mean(axis=tuple(axis for axis in range(outputs.ndim) if axis != 1)))
    return found[0], found[1]


@pytest.mark.parametrize("kind", ["Conv", "grouped", "Gemm"])
def test_the_mean_of_each_channel_comes_right(kind: str) -> None:
    exact, plain = means(kind, False)
    _, corrected = means(kind, False, Repairs(bias_correction=True))
    assert np.abs(corrected - exact).mean() < 0.4 * np.abs(plain - exact).mean()


@pytest.mark.parametrize("kind", ["Conv", "grouped", "Gemm"])
@pytest.mark.parametrize("repair", ["bias_correction", "weight_correction"])
def test_exact_weights_are_left_bit_for_bit(kind: str, repair: str) -> None:
    repairs = Repairs(**{repair: True})
    np.testing.assert_array_equal(means(kind, True)[1], means(kind, True, repairs)[1])


def test_fp32_is_left_bit_for_bit() -> None:
    net, name, inputs = layer("Conv", False)
    model = BACKEND.load(net.make(inputs, [name]))
    batches = data(inputs)
    seen = BACKEND.observe(model, batches, (0,))[0]
    recipe = restrict(BACKEND.inspect(model), ()).default()
    back = Recipe(recipe.with_float(recipe.ops).ops, repairs=BACKEND.repairs)
    low = BACKEND.build(model, back, seen)
    np.testing.assert_array_equal(
        BACKEND.run(model, batches[0])[0], BACKEND.run(low, batches[0])[0]
    )


def test_the_shift_of_a_grouped_convolution() -> None:
    net, _, _ = layer("grouped", False)
    rng = np.random.default_rng(0)
    error, mean = rng.standard_normal((8, 2, 3, 3)), rng.standard_normal(8)
    expected = [
        sum(error[out, at].sum() * mean[out // 2 * 2 + at] for at in range(2)) for out in range(8)
    ]
    np.testing.assert_allclose(bias_shift(net.nodes[-1], error, mean), expected)


def test_spread_is_what_it_was() -> None:
    weight = np.random.default_rng(0).standard_normal((4, 50)).astype(np.float32)
    scale = np.full(4, 0.4, np.float32)
    rounded = np.rint(weight / 0.4).astype(np.int8)
    corrected = corrected_scale(weight, rounded, scale, 0)
    np.testing.assert_allclose((rounded * corrected[:, None]).std(axis=1), weight.std(axis=1), 1e-5)
    dead = np.zeros((4, 50), np.int8)
    np.testing.assert_array_equal(corrected_scale(weight, dead, scale, 0), scale)


def test_a_dead_channel_with_a_large_constant_spoils_no_range() -> None:
    """What nobody reads is made small: the range belongs to the channels that are read."""
    net = Net()
    net.conv("x", "first", (8, 3, 3, 3))
    net.conv(net.add("Relu", ["first"], "relu"), "second", (4, 8, 3, 3))
    net.weights["first.w"][3], net.weights["first.b"][3] = 0.0, 500.0
    net.weights["second.w"][:, 3] = 0.0
    backend = OnnxBackend()
    model = backend.load(net.make({"x": ["n", 3, 16, 16]}, ["second"]))
    x = images(1)[0][0]
    (exact,) = backend.run(model, (x,))
    assert np.array_equal(session(model.prepared).run(None, {"x": x})[0], exact)
    recipe = restrict(backend.inspect(model), ()).default()
    built = backend.build(model, recipe, backend.observe(model, [(x,)], (0,))[0])
    (made,) = backend.run(built, (x,))
    noise = float(((made - exact) ** 2).sum() / ((exact - exact.mean()) ** 2).sum())
    assert -10 * np.log10(noise) > 25
