"""What stays in floats between INT8 products: attention, layer norms; and padding in 8 bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from backends.tensorflow.nets import Maker, graph_of, images
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.passes.fuse_norms import fuse_norms
from lpot.backends.tensorflow.passes.lower_contractions import lower_contractions
from lpot.backends.tensorflow.quick import QuickSession
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layer_norm import match_layer_norms
from lpot.core.backend import ModelSpec
from lpot.core.space import restrict

BACKEND = TensorflowBackend()
RANDOM = np.random.default_rng(0)


def kinds(net: Net) -> Counter[str]:
    return Counter(node.op for node in net.nodes.values() if node.op != "Const")


def run(net: Net, **feeds: np.ndarray) -> np.ndarray:
    with QuickSession(net) as session:
        return session.run("y:0", {f"{name}:0": value for name, value in feeds.items()})


CONTRACTIONS = {
    "aecd,abcd->acbe": ((2, 5, 3, 4), (2, 6, 3, 4), 2),  # scores of attention
    "acbe,aecd->abcd": ((2, 3, 6, 5), (2, 5, 3, 4), 2),  # what they pick
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5), 0),
    "bij,bkj->bik": ((2, 3, 4), (2, 5, 4), 0),
    "bji,bjk->bik": ((2, 4, 3), (2, 4, 5), 0),
    "bij,bjk->bki": ((2, 3, 4), (2, 4, 5), 0),
    "abi,bai->ab": ((2, 3, 4), (3, 2, 4), None),  # no matrix on either side
    "bij,jk->bik": ((2, 3, 4), (4, 5), None),  # nothing to go by one by one
    "bij,bjj->bi": ((2, 3, 4), (2, 4, 4), None),  # a diagonal
    "bijl,bjlk->bik": ((2, 3, 4, 2), (2, 4, 2, 5), None),  # summed over two
}


@pytest.mark.parametrize("equation", CONTRACTIONS)
def test_einsums_of_activations_become_batched_products(equation: str) -> None:
    one, two, moves = CONTRACTIONS[equation]

    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, *one[1:]], name="x")
        z = v1.placeholder(tf.float32, two, name="z")
        tf.einsum(equation, x, z, name="made")

    graph_def = graph_of(build)
    (node,) = [node for node in graph_def.node if node.op == "Einsum"]
    node.name = "y"
    net = Net.of(graph_def, ["x", "z"], ["y"]).pruned()
    after = lower_contractions(net)
    feeds = {"x": RANDOM.normal(size=one), "z": RANDOM.normal(size=two)}
    np.testing.assert_allclose(run(after, **feeds), run(net, **feeds), rtol=1e-5, atol=1e-5)
    if moves is None:
        assert after.nodes.keys() == net.nodes.keys()
    else:
        assert "Einsum" not in kinds(after)
        assert kinds(after)["BatchMatMulV2"] == 1
        assert kinds(after)["Transpose"] <= max(moves + 1, 1)


def with_moments(make: Maker, x: Any) -> Any:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(
        x, mean, variance, make.vector(8), make.vector(8, around=1.0), 1e-5
    )


def by_hand(make: Maker, x: Any) -> Any:
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
    return centred / tf.sqrt(variance + 1e-6) * make.vector(8, around=1.0) + make.vector(8)


def plain(make: Maker, x: Any) -> Any:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-3)


def of_keras(make: Maker, x: Any) -> Any:
    gamma, beta = (make.vector(8, around=around) for around in (1.0, 0.0))
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    inverse = tf.math.rsqrt(variance + 1e-3) * gamma
    return x * inverse + (-mean * inverse + beta)


@pytest.mark.parametrize("norm", [with_moments, by_hand, plain, of_keras])
@pytest.mark.parametrize("rank", [2, 3])
def test_a_layer_norm_is_known_by_what_it_computes(
    norm: Callable[[Maker, Any], Any], rank: int
) -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, *[5] * (rank - 2), 8], name="x")
        shortcut = x * 2.0  # others may read what it reads
        tf.add(norm(make, x), shortcut, name="y")

    net = Net.of(graph_of(build), ["x"], ["y"]).pruned()
    after = fuse_norms(net)
    x = RANDOM.normal(size=(3, *[5] * (rank - 2), 8)).astype(np.float32)
    np.testing.assert_allclose(run(after, x=x), run(net, x=x), rtol=1e-4, atol=1e-5)
    assert kinds(after) == {"_MklLayerNorm": 1, "Mul": 1, "AddV2": 1, "Placeholder": 1}


def root_mean_square(make: Maker, x: Any) -> Any:
    return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6)


def over_rows(make: Maker, x: Any) -> Any:
    mean, variance = tf.nn.moments(x, [0], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-3)


def seen_inside(make: Maker, x: Any) -> Any:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-3) + variance


def scaled_by_row(make: Maker, x: Any) -> Any:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-3) * mean


@pytest.mark.parametrize("norm", [root_mean_square, over_rows, seen_inside, scaled_by_row])
def test_what_only_looks_like_a_layer_norm_is_left(norm: Callable[[Maker, Any], Any]) -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 8], name="x")
        tf.identity(norm(make, x), name="y")

    net = Net.of(graph_of(build), ["x"], ["y"]).pruned()
    assert match_layer_norms(net) == []


@pytest.mark.parametrize("channels", [8, 6])
@pytest.mark.parametrize("size", [16, None])
def test_padding_in_8_bits_moves_four_channels_at_a_time(channels: int, size: int | None) -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, size, size, 8], name="x")
        made = tf.nn.relu(make.conv(x, channels, 1, name="a"))
        padded = tf.pad(made, [[0, 0], [1, 1], [2, 0], [0, 0]], name="pad")
        pooled = tf.nn.max_pool2d(padded, 3, 2, "VALID", name="pool")
        tf.identity(tf.nn.relu(make.conv(pooled, 8, 1, name="b")), name="y")

    model = BACKEND.load(graph_of(build), ModelSpec(outputs=("y",)))
    recipe = restrict(BACKEND.inspect(model), ()).default()
    observations = BACKEND.observe(model, images(1), (0,))[0]
    built = BACKEND.build(model, recipe, observations)
    (pad,) = [node for node in built.net.nodes.values() if node.op == "PadV2"]
    wide = pad.attr["T"].type == tf.int32.as_datatype_enum
    assert wide == (channels % 4 == 0 and size is not None)
    truth, found = (BACKEND.run(one, images(1)[0])[0] for one in (model, built))
    assert np.abs(found - truth).max() < 0.1 * np.abs(truth).max()


HARD = {
    "divided": lambda x: x * (tf.nn.relu6(x + 3.0) / 6.0),
    "multiplied": lambda x: (x * (1 / 6)) * tf.nn.relu6(x + 3.0),
    "clipped": lambda x: x * tf.minimum(tf.maximum(x + 3.0, 0.0), 6.0) / 6.0,
}


@pytest.mark.parametrize("spelling", HARD)
@pytest.mark.parametrize("op", ["conv", "depthwise"])
def test_a_hard_swish_is_part_of_its_fp32_convolution(spelling: str, op: str) -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [4, 16, 16, 8], name="x")
        made = make.conv(x, 8) if op == "conv" else make.depthwise(x)
        tf.identity(HARD[spelling](make.norm(made)), name="y")

    model = BACKEND.load(graph_of(build))
    ready = model.prepared.net
    (x,) = images(1)[0]
    np.testing.assert_allclose(
        run(ready, x=x), run(model.net, x=x), rtol=1e-5, atol=1e-5 * np.abs(x).max()
    )
    fused = TensorflowModel(BACKEND, ready)
    ran = {op.kind for op in BACKEND.profile(fused, (x,), 1)}
    assert not ran & {"Relu6", "Mul", "AddV2", "Minimum"}, ran


def test_what_is_no_hard_swish_stays() -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [4, 16, 16, 8], name="x")
        made = make.norm(make.conv(x, 8))
        gate = tf.nn.relu6(made + 2.5) / 6.0
        tf.add(made * gate, gate, name="y")  # another shift, and the gate is read twice

    net = BACKEND.load(graph_of(build)).prepared.net
    assert "RealDiv" in kinds(net)
