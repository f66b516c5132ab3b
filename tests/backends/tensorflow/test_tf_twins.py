"""Shared subgraphs, twin nodes, residual chains in every order: INT8 is what rounding says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from backends.tensorflow.nets import Maker, graph_of, image, images
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.passes.merge_twins import merge_twins
from lpot.backends.tensorflow.passes.simulate_ops import simulate_plan
from lpot.backends.tensorflow.quick import QuickSession
from lpot.backends.tensorflow.run import feed
from lpot.backends.tensorflow.runtime import GraphDef, tf
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.liveness import check_writers, sums
from lpot.backends.tensorflow.structure.nodes import full_name
from lpot.core.backend import ModelSpec
from lpot.core.space import restrict

BACKEND = TensorflowBackend()
SEEDS, MANY = 24, 200  # the rest are slow


def built(graph_def: GraphDef, outputs: tuple[str, ...]) -> TensorflowModel:
    model = BACKEND.load(graph_def, ModelSpec(outputs=outputs))
    recipe = restrict(BACKEND.inspect(model), ()).default()
    return BACKEND.build(model, recipe, BACKEND.observe(model, images(1), (0,))[0])


def step_by_step(low: TensorflowModel) -> list[np.ndarray]:
    """The same in floats that are rounded where the plan says, in no buffer twice."""
    assert low.drawn is not None
    net, which, moved = simulate_plan(*low.drawn)
    feeds = {**feed(low.inputs, images(1)[0]), full_name(which): 0}
    with QuickSession(net) as session:
        names = [full_name(moved.get(name, name)) for name in low.output_names]
        return session.run(names, feeds)


def far(found: np.ndarray, truth: np.ndarray) -> float:
    exact = truth.astype(np.float64)
    return float(np.sqrt(((found - exact) ** 2).mean() / max((exact**2).mean(), 1e-9)))


def test_two_equal_pools_that_feed_two_sums() -> None:
    def build(make: Maker) -> None:
        made = tf.nn.relu(make.conv(image(), 8, name="stem"))
        ends = []
        for name in ("a", "b"):
            pooled = tf.nn.max_pool2d(made, 2, 2, "SAME", name=f"pool_{name}")
            strided = make.conv(made, 8, 3, 2, name=name)
            ends.append(tf.nn.relu(strided + pooled))
        tf.concat(ends, 3, name="y")

    low = built(graph_of(build), ("y",))
    (found,) = BACKEND.run(low, images(1)[0])
    assert far(found, step_by_step(low)[0]) < 1e-3
    reasons = {
        key.name: info.reason
        for key, info in BACKEND.inspect(BACKEND.load(graph_of(build))).ops.items()
    }
    assert reasons["pool_a"] == "" and "pool_a" in reasons["pool_b"]


def test_a_padded_reader_that_runs_late_keeps_the_sum_in_floats() -> None:
    """Two convolutions fold one Pad in; the second reads what the sum would have overwritten."""

    def build(make: Maker) -> None:
        x = tf.nn.relu(make.conv(image(), 8, name="stem"))
        padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
        early = tf.nn.relu(make.conv(padded, 8, padding="VALID", name="early"))
        total = tf.nn.relu(make.conv(early, 8, name="main") + x)
        late = tf.nn.relu(make.conv(padded, 8, padding="VALID", name="late"))
        last = tf.nn.relu(make.conv(total, 8, name="last"))
        tf.concat([last, late], 3, name="y")

    low = built(graph_of(build), ("y",))
    for _ in range(3):
        (found,) = BACKEND.run(low, images(1)[0])
        assert far(found, step_by_step(low)[0]) < 1e-3


def test_twins_are_merged_and_outputs_keep_their_names() -> None:
    def build(make: Maker) -> None:
        x = image()
        twins = [tf.nn.relu(x, name=name) for name in ("first", "y", "z")]
        other = tf.nn.relu6(x, name="other")
        noise = [tf.random.uniform([4], name=name) for name in ("one", "two")]
        tf.add_n([*twins, other, noise[0][0] + noise[1][0] + tf.zeros_like(x)], name="sum")

    net = Net.of(graph_of(build), ["x"], ["y", "z", "sum"]).pruned()
    after = merge_twins(net)
    kinds = Counter(node.op for node in after.nodes.values())
    assert kinds["Relu"] == 2 and kinds["Relu6"] == 1  # both outputs are there
    assert kinds["RandomUniform"] == 2  # not the same numbers
    assert list(after.nodes["sum"].input[:3]) == ["y", "y", "y"]
    assert merge_twins(after).nodes == after.nodes


def random_graph(seed: int) -> tuple[GraphDef, tuple[str, ...]]:
    """Convolutions, pools, pads, concatenations and sums over what is there already."""
    random = np.random.default_rng(seed)
    outputs = ["y"]

    def build(make: Maker) -> None:
        make.random = np.random.default_rng(seed + 1000)
        tensors = [tf.nn.relu(make.conv(image(), 8, name="stem"))]
        for index in range(int(random.integers(5, 11))):
            one, two = (tensors[-int(random.integers(1, min(4, len(tensors)) + 1))] for _ in "12")
            tensors += step(make, index, one, two)
        tf.concat([tensors[-1], tensors[-2]], 3, name="y")
        if random.random() < 0.3:
            tf.identity(tensors[int(random.integers(len(tensors)))], name="seen")
            outputs.append("seen")

    def conv(make: Maker, x: Any, name: str) -> Any:
        if random.random() < 0.3:
            x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
            return make.conv(x, 8, padding="VALID", name=name)
        return make.conv(x, 8, int(random.choice([1, 3])), name=name)

    def step(make: Maker, index: int, one: Any, two: Any) -> list[Any]:
        kind = random.choice(
            ["conv", "sum", "sum", "sum6", "plain sum", "twin sums", "pool", "twins"]
        )
        name = f"n{index}"
        if kind == "conv":
            return [tf.nn.relu(conv(make, one, name))]
        if kind in ("sum", "sum6", "plain sum"):
            ends = {"sum": tf.nn.relu, "sum6": tf.nn.relu6, "plain sum": tf.identity}
            made = conv(make, one, name)
            return [ends[kind](made + two if random.random() < 0.5 else two + made)]
        if kind == "twin sums":  # both add a twin of the same pool
            pools = [tf.nn.max_pool2d(two, 3, 1, "SAME", name=f"{name}_{i}") for i in "ab"]
            return [
                tf.nn.relu(conv(make, one, f"{name}{at}") + pool) for at, pool in enumerate(pools)
            ]
        if kind == "pool":
            return [tf.nn.max_pool2d(one, 3, 1, "SAME", name=name)]
        weight = make.weight(3, 3, 8, 8, gain=1.4)  # the same convolution twice
        both = [tf.nn.conv2d(one, weight, 1, "SAME", name=f"{name}{at}") for at in "ab"]
        return [tf.nn.relu(both[0] + two), tf.nn.relu(both[1])]

    return graph_of(build, seed), tuple(outputs)


@pytest.mark.parametrize(
    "seed", [*range(SEEDS), *(pytest.param(n, marks=pytest.mark.slow) for n in range(SEEDS, MANY))]
)
def test_random_graphs_equal_the_step_by_step_reference(seed: int) -> None:
    low = built(*random_graph(seed))
    truth = step_by_step(low)
    for _ in range(2):  # the second run has other timing
        for one, other in zip(BACKEND.run(low, images(1)[0]), truth, strict=True):
            assert far(one, other) < 0.01


def test_the_random_graphs_have_what_they_are_for() -> None:
    """Sums in place in some of them, several in a few."""
    counts = [sum(map(sums, built(*random_graph(seed)).net.nodes.values())) for seed in range(8)]
    assert sum(count > 0 for count in counts) >= 3
    assert sum(count > 1 for count in counts) >= 2


@pytest.mark.parametrize("spoilt", ["late reader", "two writers", "output", "view"])
def test_a_graph_that_would_overwrite_is_never_handed_over(spoilt: str) -> None:
    def build(make: Maker) -> None:
        x = tf.nn.relu(make.conv(image(), 8, name="stem"))
        inner = tf.nn.relu(make.conv(x, 8, name="inner"))
        total = tf.nn.relu(make.conv(inner, 8, name="main") + x)
        tf.identity(tf.nn.relu(make.conv(total, 8, name="last")), name="y")

    net = built(graph_of(build), ("y",)).net
    check_writers(net)
    (writer,) = [node for node in net.nodes.values() if sums(node)]
    fresh = type(writer)()
    fresh.CopyFrom(writer)
    fresh.name = "again"
    keep = net.keep
    if spoilt == "late reader":
        fresh.op = "QuantizedMaxPool"
    elif spoilt == "view":
        fresh.op = "Reshape"
        fresh.input[0] = writer.input[3]
    elif spoilt == "output":
        keep = keep | {writer.input[3]}
    changes = {} if spoilt == "output" else {"again": fresh}
    bad = Net({**net.nodes, **changes}, net.inputs, net.outputs, keep, net.header)
    with pytest.raises(AssertionError, match="overwrite"):
        check_writers(bad)
