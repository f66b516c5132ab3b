"""Big graphs run in sessions that never optimise their weights: the same ops, the same outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from backends.tensorflow.nets import block, cnn, images, iterator_graph, rows
from lpot.backends.tensorflow import TensorflowBackend, slim
from lpot.backends.tensorflow.run import fill, import_graph, session_config
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import full_name
from lpot.core.backend import ModelSpec
from lpot.core.space import restrict

BACKEND = TensorflowBackend()
SILENT = ("Const", "_Arg", "_Retval", "Placeholder", "NoOp")


@pytest.fixture(autouse=True)
def every_graph_is_big(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slim, "HEAVY", 0)


def normed() -> tf.keras.Model:
    """Batch norms behind convolutions, which TensorFlow multiplies into the weights of some."""
    layers = tf.keras.layers
    x = given = tf.keras.Input((16, 16, 8))
    x = layers.Activation("relu")(layers.BatchNormalization()(layers.Conv2D(32, 3)(x)))
    x = layers.BatchNormalization()(layers.Conv2D(32, 3, use_bias=False)(x))
    x = layers.ReLU(6.0)(layers.BatchNormalization()(layers.DepthwiseConv2D(3)(x)))
    model = tf.keras.Model(given, layers.Dense(64, activation="relu")(layers.Flatten()(x)))
    draw = np.random.default_rng(0)
    model.set_weights([w + draw.uniform(0.1, 0.3, w.shape) for w in model.get_weights()])
    return model


def looped() -> tf.keras.Model:
    given = tf.keras.Input((5, 8))
    return tf.keras.Model(given, tf.keras.layers.Dense(8)(tf.keras.layers.GRU(16)(given)))


CASES: dict[str, tuple[Callable[[], Any], Callable[[], np.ndarray]]] = {
    "convolutions": (cnn, lambda: images(1)[0][0]),
    "attention": (block, lambda: rows(1)[0][0]),
    "a loop": (looped, lambda: np.ones((3, 5, 8), np.float32)),
    "batch norms": (
        normed,
        lambda: np.random.default_rng(1).standard_normal((2, 16, 16, 8)).astype(np.float32),
    ),
}


def executed(net: Net, graph: tf.Graph, config: v1.ConfigProto, x: np.ndarray) -> Counter[str]:
    """What a session really runs, by kind of op."""
    told = v1.RunMetadata()
    options = v1.RunOptions(output_partition_graphs=True)
    with v1.Session(graph=graph, config=config) as session:
        fetches = [full_name(name) for name in net.outputs]
        session.run(fetches, {full_name(net.inputs[0]): x}, options, told)
    nodes = (node for part in told.partition_graphs for node in part.node)
    return Counter(
        f"{node.op} {[word.decode() for word in node.attr['fused_ops'].list.s]}"
        for node in nodes
        if node.op not in SILENT
    )


@pytest.mark.parametrize("case", ["convolutions", "attention", "batch norms"])
def test_the_same_ops_run_as_in_a_session_that_sees_the_weights(case: str) -> None:
    make, data = CASES[case]
    net, x = BACKEND.load(make()).net, data()
    plain, filled = import_graph(net.graph_def()), tf.Graph()
    fill(filled, slim.optimised(net))
    expected = executed(net, plain, session_config(), x)
    assert executed(net, filled, session_config(quick=True), x) == expected
    assert any("BiasAdd" in kind for kind in expected)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("low", [False, True])
def test_outputs_are_those_of_any_session(case: str, low: bool) -> None:
    make, data = CASES[case]
    model, x = BACKEND.load(make()), data()
    if low:
        recipe = restrict(BACKEND.inspect(model), ()).default()
        model = BACKEND.build(model, recipe, BACKEND.observe(model, [(x,)], (0,))[0])
    assert isinstance(model.engine, slim.SlimSession)
    found, called = BACKEND.run(model, (x,)), model.native(x)
    np.testing.assert_array_equal(found[0], tf.nest.flatten(called)[0])
    expected = model.sess.run(model.output_tensor_names, {model.input_tensor_names[0]: x})
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)
    model.close()
    np.testing.assert_array_equal(BACKEND.run(model, (x,))[0], found[0])


def test_tensorflow_does_not_see_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    optimise = slim.tf_optimizer.OptimizeGraph

    def watched(config: Any, asked: Any) -> Any:
        seen.append(asked.ByteSize())
        return optimise(config, asked)

    model = BACKEND.load(normed())
    monkeypatch.setattr(slim.tf_optimizer, "OptimizeGraph", watched)
    slim.optimised(model.net)
    assert len(seen) == 1 and seen[0] < 0.2 * model.nbytes


def test_a_graph_that_can_not_be_optimised_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise tf.errors.InvalidArgumentError(None, None, "no")

    model, x = BACKEND.load(cnn()), images(1)[0][0]
    expected = BACKEND.run(model, (x,))[0]
    model.close()
    monkeypatch.setattr(slim.tf_optimizer, "OptimizeGraph", failing)
    np.testing.assert_allclose(BACKEND.run(model, (x,))[0], expected, rtol=1e-4, atol=1e-5)


def test_graphs_that_need_a_session_of_the_whole_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BACKEND.load(iterator_graph()).slim is None
    midst = next(node.name for node in cnn().node if node.op == "Relu")
    assert BACKEND.load(cnn(), ModelSpec(inputs=(midst,))).slim is None
    monkeypatch.setattr(slim, "HEAVY", 1 << 24)
    assert BACKEND.load(cnn()).slim is None


def test_without_the_private_optimizer_a_session_is_tensorflow_s_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slim, "tf_optimizer", None)
    model = BACKEND.load(cnn())
    given = images(1)[0][0]
    assert model.slim is None and model.engine is model.sess
    assert np.asarray(model.native(given)).shape[0] == len(given)
