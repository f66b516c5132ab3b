"""Each pass does its one thing and changes nothing that the graph computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from backends.tensorflow.nets import Maker, block, cnn, graph_of, image, images, little, rows
from lpot.backends.tensorflow.passes.cancel_reshapes import cancel_reshapes
from lpot.backends.tensorflow.passes.drop_controls import drop_controls
from lpot.backends.tensorflow.passes.equalize_channels import (
    equalizable,
    equalize_channels,
    factors,
)
from lpot.backends.tensorflow.passes.fold_affine import fold_affine
from lpot.backends.tensorflow.passes.fold_constants import fold_constants
from lpot.backends.tensorflow.passes.hoist_bias import hoist_bias
from lpot.backends.tensorflow.passes.lower_products import lower_products
from lpot.backends.tensorflow.passes.push_batchnorm import push_batchnorm
from lpot.backends.tensorflow.passes.remove_identities import remove_identities
from lpot.backends.tensorflow.passes.settle_reshapes import settle_reshapes
from lpot.backends.tensorflow.passes.sink_reshapes import sink_reshapes
from lpot.backends.tensorflow.prepare import PASSES, prepare
from lpot.backends.tensorflow.quick import QuickSession
from lpot.backends.tensorflow.runtime import GraphDef, tf, v1
from lpot.backends.tensorflow.structure.activations import GELUS, match_activation
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.match import match_followers, match_layers


def net_of(graph_def: GraphDef, output: str = "y") -> Net:
    return Net.of(graph_def, ["x"], [output])


def kinds(net: Net) -> list[str]:
    return sorted(node.op for node in net.nodes.values() if node.op != "Const")


def outputs(net: Net, x: np.ndarray) -> np.ndarray:
    with QuickSession(net) as session:
        return session.run(f"{net.outputs[0]}:0", {"x:0": x})


def same(before: Net, after: Net, x: np.ndarray, tolerance: float = 1e-5) -> None:
    one, other = outputs(before, x), outputs(after, x)
    np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(one).max())


def pixels(channels: int = 8) -> np.ndarray:
    return images(1, channels=channels)[0][0]


@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.__name__)
@pytest.mark.parametrize(
    ("graph_def", "output", "x"),
    [
        (cnn(), "logits", images(1)[0][0]),
        (little(), "logits", images(1)[0][0]),
        (block(), "y", rows(1)[0][0]),
    ],
    ids=["cnn", "little", "block"],
)
def test_a_pass_changes_no_result_and_not_its_input(
    step: Callable[[Net], Net], graph_def: GraphDef, output: str, x: np.ndarray
) -> None:
    net = net_of(graph_def, output)
    text = net.graph_def().SerializeToString(deterministic=True)
    same(net, step(net), x)
    assert net.graph_def().SerializeToString(deterministic=True) == text


def test_identities_are_passed_by_but_outputs_keep_their_name() -> None:
    def build(make: Maker) -> None:
        x = tf.identity(tf.stop_gradient(image()))
        tf.identity(tf.transpose(tf.nn.relu(x), [0, 1, 2, 3]), name="y")

    net = remove_identities(net_of(graph_of(build)))
    assert kinds(net) == ["Identity", "Placeholder", "Relu"]
    assert list(net.nodes["y"].input) == ["Relu"]


def test_constants_are_computed_once_and_random_ones_not() -> None:
    def build(make: Maker) -> None:
        scale = tf.math.rsqrt(tf.constant([4.0, 16.0]) + 0.0) * 2.0
        x = v1.placeholder(tf.float32, [None, 2], name="x")
        noise = 0.0 * v1.random_uniform([2])
        tf.add(x * scale, noise, name="y")

    net = fold_constants(net_of(graph_of(build)))
    assert "Rsqrt" not in kinds(net)
    assert "RandomUniform" in kinds(net)
    found = outputs(net, np.ones((1, 2), np.float32))
    np.testing.assert_allclose(found, [[1.0, 0.5]])


def test_a_constant_in_a_branch_is_left_there() -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [], name="x")
        with tf.control_dependencies([x]):
            held = tf.constant(2.0, name="held")
        tf.add(tf.sqrt(held, name="root"), 0.0, name="y")

    net = fold_constants(net_of(graph_of(build)))
    assert net.nodes["root"].op == "Sqrt"


def test_controls_that_order_nothing_fall_away_and_others_stay() -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 2], name="x")
        weight = tf.identity(tf.constant([1.0, 2.0]), name="weight")
        checked = v1.Assert(tf.reduce_all(x > -1e9), [x], name="checked")
        with tf.control_dependencies([weight, checked]):
            tf.identity(x, name="y")

    net = drop_controls(net_of(graph_of(build)))
    assert "weight" not in net.nodes
    assert any(name.startswith("^checked") for name in net.nodes["y"].input)


@pytest.mark.parametrize("kind", ["conv", "depthwise", "dense", "dense_transposed"])
def test_everything_linear_behind_an_op_folds_into_it(kind: str) -> None:
    def build(make: Maker) -> None:
        if kind.startswith("dense"):
            x = v1.placeholder(tf.float32, [None, 8], name="x")
            flip = kind == "dense_transposed"
            weight = make.weight(6, 8) if flip else make.weight(8, 6)
            made = tf.matmul(x, weight, transpose_b=flip, name="op")
        else:
            x = image()
            made = make.conv(x, 8, name="op") if kind == "conv" else make.depthwise(x, name="op")
        size = int(made.shape[-1])
        made = made * make.vector(size, around=1.0) + make.vector(size)
        made = (made - make.vector(size)) / tf.constant(2.0)
        if made.shape.rank == 4:
            made = make.norm(made)
        tf.nn.relu(3.0 - made, name="y")

    net = fold_constants(net_of(graph_of(build)))
    folded = fold_affine(net)
    assert len(kinds(folded)) == 4  # placeholder, op, BiasAdd, Relu
    assert "BiasAdd" in kinds(folded)
    x = pixels() if net.shape("x") and len(net.shape("x")) == 4 else rows(1, width=8)[0][0]
    same(net, folded, x)


@pytest.mark.parametrize("shape", [(), (1,), (6,), (1, 1, 6), (4, 1), (2, 6)])
def test_only_what_broadcasts_per_channel_is_folded(shape: tuple[int, ...]) -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 8], name="x")
        made = tf.matmul(x, make.weight(8, 6), name="op")
        tf.add(made, tf.ones(shape), name="y")

    net = fold_constants(net_of(graph_of(build)))
    folded = fold_affine(net)
    assert ("BiasAdd" in kinds(folded)) == (shape in ((), (1,), (6,)))
    batch = {(4, 1): 4, (2, 6): 2}.get(shape, 3)
    same(net, folded, rows(1, batch=batch, width=8)[0][0])


def test_a_bias_behind_a_residual_moves_before_it() -> None:
    def build(make: Maker) -> None:
        x = image()
        total = v1.add_n([make.conv(x, 8, name="op"), x], name="sum")
        tf.nn.relu(total + make.vector(8), name="y")

    net = fold_constants(net_of(graph_of(build)))
    moved = hoist_bias(net)
    assert moved.nodes["sum"].op == "BiasAdd"
    same(net, moved, pixels())
    layers, _ = match_layers(moved)
    residual = layers["op"].residual
    assert residual is not None
    assert (residual.addend, residual.activation, residual.out) == ("x", "Relu", "y")


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize("pool", [True, False])
def test_a_batch_norm_before_a_convolution_goes_into_it_if_nothing_is_padded(
    padding: str, pool: bool
) -> None:
    def build(make: Maker) -> None:
        x = make.norm(tf.nn.relu(image()), name="norm")
        if pool:
            x = tf.nn.max_pool2d(x, 2, 2, "SAME", name="pool")
        made = tf.nn.bias_add(make.conv(x, 8, padding=padding, name="op"), make.vector(8))
        tf.nn.relu(made, name="y")

    net = fold_constants(net_of(graph_of(build, seed=5)))
    gamma = net.constant(net.nodes["norm"].input[1])
    assert gamma is not None
    pushed = push_batchnorm(net)
    folded = padding == "VALID" and (not pool or bool((gamma > 0).all()))
    assert ("norm" not in pushed.nodes) == folded
    same(net, pushed, pixels())


@pytest.mark.parametrize("equation", ["abc,cd->abd", "abc,cde->abde"])
def test_products_of_higher_rank_become_matmul(equation: str) -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 4, 8], name="x")
        weight = make.weight(8, 6) if equation.endswith("abd") else make.weight(8, 2, 3)
        tf.identity(tf.raw_ops.Einsum(inputs=[x, weight], equation=equation), name="y")

    net = fold_constants(net_of(graph_of(build)))
    lowered = lower_products(net)
    assert "MatMul" in kinds(lowered)
    assert "Einsum" not in kinds(lowered)
    x = np.random.default_rng(0).normal(size=(3, 4, 8)).astype(np.float32)
    same(net, lowered, x)
    layers, _ = match_layers(lowered)
    (layer,) = layers.values()
    assert layer.key.kind == "Einsum"
    assert layer.key.name in net.nodes


def test_other_contractions_are_left_alone() -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 4, 8], name="x")
        made = tf.raw_ops.Einsum(inputs=[x, make.weight(4, 6)], equation="abc,bd->acd")
        tf.identity(made, name="y")

    assert "Einsum" in kinds(lower_products(net_of(graph_of(build))))


@pytest.mark.parametrize("sizes", [[None, None, 16], [2, None, None, 16], None])
@pytest.mark.parametrize("kind", ["matmul", "transposed", "einsum", "any axes"])
def test_products_are_lowered_whatever_sizes_are_free(kind: str, sizes: list[Any] | None) -> None:
    letters = "abc"[: 2 if sizes is None else len(sizes) - 1]

    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, sizes, name="x")
        if kind == "einsum":
            y = tf.einsum(f"{letters}d,dhk->{letters}hk", x, make.weight(16, 4, 6))
            y = tf.nn.relu(y + tf.constant(make.random.normal(size=(4, 6)).astype(np.float32)))
        elif kind == "any axes":
            y = tf.raw_ops.Einsum(inputs=[x, make.weight(16, 24)], equation="...d,de->...e")
            y = tf.nn.relu(y + make.vector(24))
        elif kind == "matmul":
            y = tf.nn.relu(tf.matmul(x, make.weight(16, 24)) + make.vector(24))
        else:
            y = tf.matmul(x, make.weight(24, 16), transpose_b=True)
        tf.identity(y, name="y")

    before = net_of(graph_of(build))
    after = prepare(before)
    assert [layer.node.split("/")[-1] for layer in after.layers.values()] == ["product"]
    shape = (*(2, 3, 5)[: len(letters)], 16)
    same(before, after.net, np.random.default_rng(0).normal(size=shape).astype(np.float32))
    if sizes is not None and kind != "transposed":  # bias and activation are the product's own
        (layer,) = after.layers.values()
        assert layer.bias is not None and layer.activation == "Relu"


@pytest.mark.parametrize("gelu", ["none", "relu", "erf", "tanh"])
def test_reshapes_sink_below_what_can_be_fused(gelu: str) -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 4, 8], name="x")
        weight = make.weight(8, 8)
        made = tf.tensordot(x, weight, 1) + make.vector(8)
        if gelu == "relu":
            made = tf.nn.relu(made)
        elif gelu != "none":
            made = tf.nn.gelu(made, approximate=gelu == "tanh")
        made = tf.tensordot(made, make.weight(8, 8), 1)
        tf.nn.softmax(tf.nn.bias_add(made, make.vector(8)) + x, name="y")

    net = remove_identities(fold_constants(net_of(graph_of(build))))
    sunk = net
    for step in (settle_reshapes, cancel_reshapes, sink_reshapes, cancel_reshapes):
        sunk = step(sunk)
    assert kinds(sunk).count("Reshape") == 2  # x to rows, once for both uses, and back at the end
    assert "Shape" not in kinds(sunk)
    x = np.random.default_rng(0).normal(size=(3, 4, 8)).astype(np.float32)
    same(net, sunk, x)
    layers, _ = match_layers(sunk)
    first, second = layers.values()
    names = {"none": "", "relu": "Relu", "erf": "GeluExact", "tanh": "GeluApproximate"}
    assert first.activation == names[gelu]
    assert second.x == first.out
    assert second.residual is not None


def test_gelu_is_known_by_what_it_computes() -> None:
    spellings: dict[str, Callable[[Any], Any]] = {
        "exact": lambda x: 0.5 * x * (1.0 + tf.math.erf(x / 1.4142135)),
        "erfc": lambda x: 0.5 * x * tf.math.erfc(-x * 0.70710678),
        "square": lambda x: (
            x * 0.5 * (1.0 + tf.tanh(x * 0.79788456 * (1.0 + 0.044715 * tf.square(x))))
        ),
        "swish": lambda x: x * tf.sigmoid(1.702 * x),
        "half": lambda x: 0.25 * x * (1.0 + tf.math.erf(x / 1.4142135)),
    }
    found = {}
    for name, spelling in spellings.items():

        def build(make: Maker, spelling: Callable[[Any], Any] = spelling) -> None:
            x = v1.placeholder(tf.float32, [None, 8], name="x")
            tf.nn.relu(spelling(tf.identity(x, name="start")), name="y")

        result = match_activation(net_of(graph_of(build)), "start", GELUS)
        found[name] = None if result is None else result[0]
    assert found == {
        "exact": "GeluExact",
        "erfc": "GeluExact",
        "square": "GeluApproximate",
        "swish": None,
        "half": None,
    }


def test_equalizing_is_exact_to_the_last_bit_and_evens_the_channels_out() -> None:
    def build(make: Maker) -> None:
        x = image()
        weight = make.weight(3, 3, 8, 16) * tf.constant(np.exp2(np.arange(-8, 8)), tf.float32)
        torn = tf.nn.relu(tf.nn.conv2d(x, weight, 1, "SAME", name="one"), name="torn")
        pooled = tf.nn.max_pool2d(torn, 2, 2, "SAME")
        undo = tf.constant(np.exp2(-np.arange(-8.0, 8.0))[:, None], tf.float32)
        tf.nn.relu(tf.nn.conv2d(pooled, make.weight(3, 3, 16, 8) * undo, 1, "SAME"), name="y")

    net = fold_constants(net_of(graph_of(build)))
    layers, _ = match_layers(net)
    followers, _ = match_followers(net)
    pairs = equalizable(net, layers, followers)
    assert list(pairs) == ["one"]
    torn = outputs(Net.of(net.graph_def(), ["x"], ["torn"]), pixels())
    peaks = np.abs(torn).max(axis=(0, 1, 2))
    scales = factors(peaks, net, pairs["one"])
    even = equalize_channels(net, layers, followers, {"one": scales})
    np.testing.assert_array_equal(outputs(net, pixels()), outputs(even, pixels()))
    after = np.abs(outputs(Net.of(even.graph_def(), ["x"], ["torn"]), pixels())).max(axis=(0, 1, 2))
    assert peaks.max() / peaks.min() > 1000
    assert after.max() / after.min() < 16


def test_a_tensor_that_others_see_is_not_equalized() -> None:
    def build(make: Maker) -> None:
        torn = tf.nn.relu(make.conv(image(), 8, name="one"), name="torn")
        tf.nn.relu(make.conv(torn, 8, name="two") + tf.sigmoid(torn), name="y")

    net = net_of(graph_of(build))
    layers, _ = match_layers(net)
    assert not equalizable(net, layers, match_followers(net)[0])


def test_the_whole_cnn_comes_down_to_units() -> None:
    prepared = prepare(net_of(cnn(), "logits"))
    assert len(prepared.layers) == 12
    assert all(layer.bias is not None for name, layer in prepared.layers.items() if name < "h")
    fused = {name for name, layer in prepared.layers.items() if layer.residual is not None}
    assert fused == {"b/conv", "g/conv"}
    assert {name for name, f in prepared.followers.items() if not f.is_mover} == {"pool", "join"}
