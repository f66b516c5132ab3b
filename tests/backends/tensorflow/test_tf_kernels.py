"""What the fused kernels give is what the arithmetic says, to one step of the output.

With the bits that the self-test allows, on every CPU; with 8 bits exactly where it says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from backends.tensorflow.nets import Maker, graph_of, image, images, rows
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.formats import Format
from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.passes.simulate_ops import simulate_plan
from lpot.backends.tensorflow.plan import Plan
from lpot.backends.tensorflow.quick import QuickSession
from lpot.backends.tensorflow.repair import repair
from lpot.backends.tensorflow.run import feed
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.backends.tensorflow.saturation import saturates
from lpot.backends.tensorflow.structure.nodes import full_name
from lpot.core.backend import ModelSpec, Observations
from lpot.core.recipe import OpConfig, Recipe, TensorConfig
from lpot.core.space import restrict

BACKEND = TensorflowBackend()
EXACT = 1e-3  # a few values halfway between two codes


class Case:
    """A small net, calibrated, built under a recipe, with the plan at hand."""

    def __init__(
        self,
        build: Callable[[Maker], None],
        batches: list[Any],
        change: Callable[[OpConfig], OpConfig] = lambda config: config,
        spec: ModelSpec = ModelSpec(outputs=("y",)),
    ) -> None:
        self.batches = batches
        self.model: TensorflowModel = BACKEND.load(graph_of(build), spec)
        start = restrict(BACKEND.inspect(self.model), ()).default()
        self.recipe = Recipe({key: change(config) for key, config in start.ops.items()})
        self.observations: Observations = BACKEND.observe(self.model, batches, (0,))[0]
        self.built: TensorflowModel = BACKEND.build(self.model, self.recipe, self.observations)
        repaired = repair(self.model.prepared, self.recipe, self.observations)
        self.prepared = repaired.prepared
        self.plan: Plan = repaired.plan()

    def ops(self, kind: str) -> list[Any]:
        return [node for node in self.built.net.nodes.values() if node.op == kind]

    def fused(self, kind: str = "_FusedQuantizedConv2D") -> set[tuple[str, ...]]:
        return {
            tuple(word.decode() for word in node.attr["fused_ops"].list.s)
            for node in self.ops(kind)
        }

    def error(self) -> float:
        """Distance of the kernels from floats that are rounded step by step as they should."""
        net, which, moved = simulate_plan(self.prepared, self.plan)
        output = self.model.output_names[0]
        feeds = {**feed(self.model.inputs, self.batches[0]), full_name(which): 0}
        with QuickSession(net) as session:
            truth = session.run(full_name(moved.get(output, output)), feeds)
        found = BACKEND.run(self.built, self.batches[0])[0]
        return far(found, truth)

    def loss(self) -> float:
        """Distance from FP32, which rounding alone makes."""
        truth = BACKEND.run(self.model, self.batches[0])[0]
        return far(BACKEND.run(self.built, self.batches[0])[0], truth)


def far(found: np.ndarray, truth: np.ndarray) -> float:
    """Relative distance, root of mean square."""
    exact = truth.astype(np.float64)
    return float(np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()))


def as_config(
    dtype: str, scheme: str, granularity: str = "per_channel", bits: int | None = None
) -> Any:
    """With so many bits for weights, or as many as are safe here."""

    def change(config: OpConfig) -> OpConfig:
        weight = None
        if config.weight is not None:
            used = bits or config.weight.bits
            weight = TensorConfig("int8", "sym", granularity, "minmax", used)
        return OpConfig(TensorConfig(dtype, scheme, "per_tensor", "minmax", 8), weight)

    return change


def held(values: np.ndarray, form: Format) -> np.ndarray:
    """Values as they come back from a form."""
    lowest, highest = (-127, 127) if form.dtype == "qint8" else (0, 255)
    codes = np.clip(np.rint(values / np.float32(form.scale)) + form.zero, lowest, highest)
    return (codes - form.zero) * np.float32(form.scale)


def held_weight(weight: np.ndarray, axes: tuple[int, ...], bits: int, halved: bool) -> np.ndarray:
    levels = 63 if halved or bits == 7 else 127
    scale = np.abs(weight).max(axis=axes, keepdims=True) / levels
    return np.rint(weight / scale) * scale


ACTIVATIONS = [("uint8", "asym"), ("uint8", "sym"), ("int8", "sym")]


@pytest.mark.parametrize("granularity", ["per_channel", "per_tensor"])
@pytest.mark.parametrize(("dtype", "scheme"), ACTIVATIONS)
@pytest.mark.parametrize("bits", [7, 8])
@pytest.mark.parametrize("kind", ["plain", "padded", "pointwise", "depthwise", "pad_before"])
def test_a_convolution_is_right_to_one_step(
    kind: str, bits: int, dtype: str, scheme: str, granularity: str
) -> None:
    def build(make: Maker) -> None:
        x = image()
        if kind == "depthwise":
            made = make.depthwise(x, name="op")
        elif kind == "pad_before":
            x = tf.pad(x, [[0, 0], [1, 2], [0, 1], [0, 0]])
            made = make.conv(x, 8, stride=2, padding="VALID", name="op")
        else:
            padding = "VALID" if kind == "plain" else "SAME"
            made = make.conv(x, 8, 1 if kind == "pointwise" else 3, padding=padding, name="op")
        tf.nn.bias_add(made, make.vector(8), name="y")

    trial = Case(build, images(1), as_config(dtype, scheme, granularity, bits))
    step = trial.plan.steps["op"]
    layer, (x,) = step.layer, trial.batches[0]
    taken, given = trial.plan.wanted["x"], trial.plan.held["y"]
    signed_anyway = kind in ("padded", "depthwise", "pad_before")
    assert taken.dtype == ("qint8" if dtype == "int8" or signed_anyway else "quint8")
    weight = trial.prepared.net.constant(layer.weight)
    bias = trial.prepared.net.constant(layer.bias or "")
    assert weight is not None
    channels = (2,) if kind == "depthwise" else (3,)
    axes = tuple(i for i in range(4) if granularity == "per_tensor" or i not in channels)
    halved = taken.dtype == "qint8" and (bits == 7 or kind == "depthwise")
    real = held_weight(weight, axes, bits, halved).astype(np.float32)
    source = held(x, taken)
    if kind == "depthwise":
        exact = tf.nn.depthwise_conv2d(source, real, [1, 1, 1, 1], "SAME").numpy() + bias
    elif kind == "pad_before":
        source = np.pad(source, [(0, 0), (1, 2), (0, 1), (0, 0)])
        exact = tf.nn.conv2d(source, real, 2, "VALID").numpy() + bias
    else:
        exact = tf.nn.conv2d(source, real, 1, "VALID" if kind == "plain" else "SAME") + bias
        exact = np.asarray(exact)
    found = BACKEND.run(trial.built, trial.batches[0])[0]
    distance = np.abs(found - held(exact, given)) / given.scale
    # A value halfway between two codes may go either way; nothing may be further off.
    exact = distance.max() < 1.01 and (distance > 0.5).mean() < 0.02
    op = "DepthwiseConv2dNative" if kind == "depthwise" else "Conv2D"
    assert exact == (bits == 7 or not saturates(op))


@pytest.mark.parametrize("bits", [7, 8])
@pytest.mark.parametrize(("dtype", "scheme"), ACTIVATIONS)
@pytest.mark.parametrize("activation", ["", "Relu", "Relu6", "Tanh", "LeakyRelu", "gelu", "erf"])
def test_a_matmul_is_right(activation: str, dtype: str, scheme: str, bits: int) -> None:
    calls: dict[str, Callable[[Any], Any]] = {
        "": tf.identity,
        "Relu": tf.nn.relu,
        "Relu6": tf.nn.relu6,
        "Tanh": tf.tanh,
        "LeakyRelu": lambda x: tf.nn.leaky_relu(x, 0.3),
        "gelu": lambda x: tf.nn.gelu(x, approximate=True),
        "erf": lambda x: tf.nn.gelu(x, approximate=False),
    }

    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 32], name="x")
        made = calls[activation](make.dense(x, 24, "one"))
        tf.nn.softmax(make.dense(made, 16, "two"), name="y")

    trial = Case(build, rows(2), as_config(dtype, scheme, bits=bits))
    assert len(trial.ops("QuantizeV2")) == 1  # between the two there are only 8 bits
    assert not trial.ops("Dequantize")
    assert (trial.error() < EXACT) == (bits == 7 or not saturates("MatMul"))


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "strided": {"strides": 2, "padding": "SAME"},
    "uneven strides": {"strides": [1, 2, 1, 1], "padding": "SAME"},
    "dilated": {"strides": 1, "padding": "SAME", "dilations": 2},
    "dilated, unpadded": {"strides": 1, "padding": "VALID", "dilations": 3},
    "explicit padding": {"strides": 2, "padding": [[0, 0], [1, 0], [2, 1], [0, 0]]},
}


@pytest.mark.parametrize("kind", [*CONVOLUTIONS, "multiplier", "strided depthwise"])
def test_convolutions_of_every_shape(kind: str) -> None:
    def build(make: Maker) -> None:
        if kind in CONVOLUTIONS:
            made = tf.nn.conv2d(image(), make.weight(3, 3, 8, 16), **CONVOLUTIONS[kind], name="op")
        elif kind == "multiplier":
            weight = make.weight(3, 3, 8, 2, gain=4.0)
            made = tf.nn.depthwise_conv2d(image(), weight, [1, 1, 1, 1], "SAME", name="op")
        else:
            weight = make.weight(3, 3, 8, 2, gain=4.0)
            made = tf.nn.depthwise_conv2d(image(), weight, [1, 2, 2, 1], "SAME", name="op")
        tf.nn.bias_add(made, make.vector(16), name="y")

    trial = Case(build, images(1))
    assert trial.plan.steps
    assert trial.error() < EXACT < trial.loss() < 0.04


def test_a_grouped_convolution_is_left_alone() -> None:
    def build(make: Maker) -> None:
        made = tf.nn.conv2d(image(), make.weight(3, 3, 4, 8), 1, "SAME", name="op")
        tf.identity(made, name="y")

    model = BACKEND.load(graph_of(build))
    (info,) = BACKEND.inspect(model).ops.values()
    assert "grouped" in info.reason


def test_a_one_dimensional_convolution_is_fused_whole() -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 32, 8], name="x")
        for index in range(2):
            made = tf.nn.conv1d(x, make.weight(5, 8, 8, gain=1.4), 1, "SAME", name=f"op{index}")
            x = tf.nn.relu(tf.nn.bias_add(made, make.vector(8)))
        tf.identity(x, name="y")

    batch = np.random.default_rng(0).normal(size=(4, 32, 8)).astype(np.float32)
    trial = Case(build, [(batch,)])
    assert trial.fused() == {("BiasAdd", "Relu", "Requantize")}
    assert len(trial.ops("QuantizeV2")) == 1  # 8 bits from one to the other
    assert trial.error() < EXACT < trial.loss() < 0.04


def test_a_residual_with_relu_adds_in_place() -> None:
    def build(make: Maker) -> None:
        stem = tf.nn.relu(make.conv(image(), 8, name="a"))
        inner = tf.nn.relu(make.conv(stem, 8, name="b"))
        total = tf.nn.relu(make.conv(inner, 8, name="c") + stem)
        tf.identity(tf.nn.relu(make.conv(total, 8, name="d")), name="y")

    trial = Case(build, images(1))
    assert ("BiasAdd", "Sum", "Relu", "Requantize") in trial.fused()
    assert not trial.ops("AddV2")
    assert len(trial.ops("Dequantize")) == 1
    assert trial.error() < EXACT < trial.loss() < 0.04


@pytest.mark.parametrize("activation", [tf.identity, tf.nn.relu6])
def test_a_residual_without_relu_adds_in_place_above_a_zero_point(activation: Any) -> None:
    def build(make: Maker) -> None:
        thin = make.conv(image(), 8, 1, name="a")
        wide = tf.nn.relu6(make.conv(thin, 16, 1, name="b"))
        total = activation(make.conv(wide, 8, 1, name="c") + thin)
        tf.identity(tf.nn.relu(make.conv(total, 8, 1, name="d")), name="y")

    trial = Case(build, images(1))
    assert ("BiasAdd", "Sum", "Relu", "Requantize") in trial.fused()
    assert not trial.ops("AddV2")
    form = trial.plan.wanted[trial.plan.steps["c"].out]
    assert form.dtype == "quint8"
    assert (form.zero > 0) == (activation is tf.identity)
    assert trial.error() < EXACT < trial.loss() < 0.04


def test_both_sides_of_a_sum_may_be_convolutions() -> None:
    def build(make: Maker) -> None:
        x = tf.nn.relu(make.conv(image(), 8, name="stem"))
        short = make.conv(x, 16, 1, name="short")
        main = make.conv(tf.nn.relu(make.conv(x, 8, name="a")), 16, 1, name="b")
        total = tf.nn.relu(main + short)
        tf.identity(tf.nn.relu(make.conv(total, 8, name="d")), name="y")

    trial = Case(build, images(1))
    summed = [name for name, step in trial.plan.steps.items() if step.sums]
    assert len(summed) == 1
    assert trial.error() < EXACT < trial.loss() < 0.04


@pytest.mark.parametrize("case", ["output", "later_reader", "broadcast", "reads_itself"])
def test_a_sum_that_may_not_overwrite_is_left_in_floats(case: str) -> None:
    def build(make: Maker) -> None:
        stem = tf.nn.relu(make.conv(image(), 8, name="a"), name="stem")
        if case == "broadcast":
            inner = tf.nn.relu(make.conv(image2(make, stem), 8, name="b"))
        elif case == "reads_itself":
            inner = stem
        else:
            inner = tf.nn.relu(make.conv(stem, 8, name="b"))
        total = tf.nn.relu(make.conv(inner, 8, name="c") + stem)
        last = tf.nn.relu(make.conv(total, 8, name="d"))
        if case == "later_reader":
            last = last + tf.nn.relu(make.conv(stem, 8, name="late"))
        tf.identity(last, name="y")

    def image2(make: Maker, stem: Any) -> Any:
        return tf.nn.max_pool2d(stem, 16, 16, "SAME")  # 1 × 1, spread over the image by the sum

    outputs = ("y", "stem") if case == "output" else ("y",)
    trial = Case(build, images(1), spec=ModelSpec(outputs=outputs))
    assert not any(step.sums for step in trial.plan.steps.values())
    assert trial.error() < EXACT < trial.loss() < 0.04


def test_pooling_concat_and_moving_ops_hand_8_bits_on() -> None:
    def build(make: Maker) -> None:
        x = tf.nn.relu(make.conv(image(), 8, name="a"))
        parts = [
            tf.nn.relu(make.conv(x, 8, 1, name="b")),
            tf.nn.relu(make.conv(x, 16, 1, name="c")),
            tf.nn.avg_pool2d(x, 3, 1, "SAME", name="average"),
        ]
        joined = tf.nn.max_pool2d(tf.concat(parts, 3, name="join"), 3, 2, "SAME", name="peak")
        moved = tf.pad(joined[:, ::2, ::2, :], [[0, 0], [0, 0], [0, 0], [0, 4]])
        made = tf.nn.relu(make.conv(moved, 8, 1, name="d"))
        tf.identity(make.dense(tf.reshape(made, [-1, 4 * 4 * 8]), 10, "e"), name="y")

    trial = Case(build, images(1))
    assert len(trial.ops("QuantizeV2")) == 1
    assert not trial.ops("Dequantize")  # the last MatMul gives floats itself
    assert {node.op for node in trial.built.net.nodes.values()} >= {
        "QuantizedMaxPool",
        "QuantizedAvgPool",
        "PadV2",
    }
    assert trial.error() < 0.02  # averages are rounded, too
    assert trial.loss() < 0.05


def test_a_follower_alone_stays_in_floats() -> None:
    def build(make: Maker) -> None:
        x = tf.nn.max_pool2d(image(), 2, 2, "SAME", name="pool")
        tf.identity(tf.nn.relu(make.conv(x, 8, name="a")), name="y")

    trial = Case(build, images(1))
    assert trial.ops("MaxPool")
    assert trial.built.precisions == {
        key: "int8" if key.name == "a" else "fp32" for key in trial.recipe.ops
    }


def test_a_matmul_with_a_float_residual_adds_it_itself() -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 32], name="x")
        mixed = make.dense(tf.nn.softmax(x), 32, "one") + x
        tf.nn.softmax(mixed, name="y")

    trial = Case(build, rows(1))
    assert trial.fused("_QuantizedMatMul") == {("BiasAdd", "Add", "Dequantize")}
    assert trial.error() < EXACT


def test_constant_zero_and_tiny_values_are_safe() -> None:
    def build(make: Maker) -> None:
        x = image()
        dead = tf.constant(np.zeros((3, 3, 8, 8), np.float32))
        tiny = tf.constant(np.full((3, 3, 8, 8), 1e-30, np.float32))
        one = tf.nn.relu(tf.nn.conv2d(x, dead, 1, "SAME", name="dead"))
        two = tf.nn.relu(tf.nn.conv2d(x, tiny, 1, "SAME", name="tiny"))
        tf.identity(one + two + make.conv(x, 8, name="live"), name="y")

    trial = Case(build, images(1))
    found = BACKEND.run(trial.built, trial.batches[0])[0]
    assert np.isfinite(found).all()
    assert trial.error() < EXACT < trial.loss() < 0.04
