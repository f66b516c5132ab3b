"""Sessions are set up for memory in three ways; what they compute does not depend on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from backends.tensorflow.nets import block, cnn, images, rows
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.quick import LENT, QuickSession
from lpot.backends.tensorflow.run import ALONE, HEAVY, import_graph, session_config
from lpot.backends.tensorflow.runtime import GraphDef, tf, v1
from lpot.core.backend import ModelSpec
from lpot.core.space import restrict

BACKEND = TensorflowBackend()


def looped() -> GraphDef:
    given = tf.keras.Input((5, 8))
    return BACKEND.load(tf.keras.Model(given, tf.keras.layers.GRU(4)(given))).graph_def


CASES: dict[str, tuple[Callable[[], GraphDef], Callable[[], Any]]] = {
    "convolutions": (cnn, lambda: images(1)[0]),
    "attention": (block, lambda: rows(1)[0]),
    "a loop": (looped, lambda: np.ones((3, 5, 8), np.float32)),
}


def outputs(graph_def: GraphDef, config: v1.ConfigProto, x: Any) -> list[np.ndarray]:
    model = BACKEND.load(graph_def)
    with v1.Session(graph=import_graph(graph_def), config=config) as session:
        given = {model.input_tensor_names[0]: x[0] if isinstance(x, tuple) else x}
        return [session.run(name, given) for name in model.output_tensor_names]


@pytest.mark.parametrize("case", CASES)
def test_a_graph_gives_the_same_however_its_session_is_set_up(case: str) -> None:
    make, data = CASES[case]
    graph_def, x = make(), data()
    plain, heavy, quick = (
        outputs(graph_def, config, x)
        for config in (session_config(), session_config(size=HEAVY + 1), session_config(quick=True))
    )
    for one, two, three in zip(plain, heavy, quick, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_allclose(one, three, rtol=1e-4, atol=1e-5)


def test_threads_and_the_kernels_kept_for_them_end_with_a_session() -> None:
    tasks = Path("/proc/self/task")
    if not tasks.exists():
        pytest.skip("this system does not tell the threads of a process")
    model = BACKEND.load(cnn())
    recipe = restrict(BACKEND.inspect(model), ()).default()
    batch = images(1)[0]
    observed = BACKEND.observe(model, [batch], (0,))[0]
    counts: list[int] = []
    for _ in range(4):
        built = BACKEND.build(model, recipe, observed)
        BACKEND.run(built, batch)
        assert sum(1 for _ in tasks.iterdir()) > min(counts, default=0)
        built.close()
        counts.append(sum(1 for _ in tasks.iterdir()))
    assert counts[-1] == counts[0]


def test_a_quick_session_runs_what_it_is_asked_for_twice() -> None:
    """It holds the nodes asked for and no others: the second question is another one."""
    graph_def = cnn()
    model = BACKEND.load(graph_def)
    session = QuickSession(model.net)
    given = {model.input_tensor_names[0]: images(1)[0][0]}
    convs = [f"{node.name}:0" for node in graph_def.node if node.op == "Conv2D"]
    with session:
        first, last = (session.run(name, given) for name in (convs[0], convs[-1]))
        both = session.run([convs[0], convs[-1]], given)
    np.testing.assert_array_equal(both[0], first)
    np.testing.assert_array_equal(both[1], last)


@pytest.mark.parametrize("low", [False, True])
def test_a_few_batches_are_run_without_a_session_that_is_kept(low: bool) -> None:
    model, batches = BACKEND.load(cnn()), images(2)
    if low:
        recipe = restrict(BACKEND.inspect(model), ()).default()
        model = BACKEND.build(model, recipe, BACKEND.observe(model, batches, (0,))[0])
    found = BACKEND.run_few(model, batches)
    assert "native" not in model.__dict__
    for one, batch in zip(found, batches, strict=True):
        np.testing.assert_allclose(one[0], BACKEND.run(model, batch)[0], rtol=1e-4, atol=1e-5)


def dense(width: int = 96) -> tf.keras.Model:
    given = tf.keras.Input((width,))
    return tf.keras.Model(given, tf.keras.layers.Dense(width)(given))


def test_weights_are_lent_to_a_quick_session_and_not_written_into_it() -> None:
    model = BACKEND.load(dense())
    x = np.random.default_rng(0).standard_normal((2, 96)).astype(np.float32)
    with QuickSession(model.net) as session:
        assert session.graph.as_graph_def().ByteSize() < LENT < model.nbytes
        found = session.run(model.output_tensor_names, {model.input_tensor_names[0]: x})
    np.testing.assert_allclose(found[0], BACKEND.run(model, (x,))[0], rtol=1e-4, atol=1e-5)


def test_a_constant_that_waits_for_a_branch_is_not_lent() -> None:
    with tf.Graph().as_default() as graph:
        flag = v1.placeholder(tf.bool, (), "flag")
        v1.disable_control_flow_v2()
        try:
            big = np.arange(8192, dtype=np.float32)
            v1.cond(flag, lambda: tf.constant(big) + 1.0, lambda: tf.constant(big) - 1.0, name="y")
        finally:
            v1.enable_control_flow_v2()
    model = BACKEND.load(graph, ModelSpec(outputs=("y/Merge",)))
    with QuickSession(model.net) as session:
        for value, shift in ((True, 1.0), (False, -1.0)):
            np.testing.assert_array_equal(
                session.run("y/Merge:0", {"flag:0": value}), big + np.float32(shift)
            )


def test_a_graph_filled_piece_by_piece_is_the_whole_graph() -> None:
    """Big constants are imported alone, those that others wait for among the rest."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, 512), "x")
        weight = tf.constant(np.eye(512, dtype=np.float32), name="weight")
        waited = tf.constant(np.ones((512, 512), np.float32), name="waited")
        with tf.control_dependencies([waited]):
            once = tf.matmul(x, weight)
        tf.add(tf.matmul(once, waited), tf.matmul(once, weight), name="y")
    model = BACKEND.load(graph)
    assert sum(node.ByteSize() > ALONE for node in model.net.nodes.values()) == 2
    given = {node.name: node for node in graph.as_graph_def().node}
    made = {node.name: node for node in model.graph_def.node}
    assert made == given
    x = np.random.default_rng(0).standard_normal((2, 512)).astype(np.float32)
    expected = x.sum(1, keepdims=True) + x
    np.testing.assert_allclose(BACKEND.run(model, (x,))[0], expected, rtol=1e-3, atol=1e-3)


def test_a_graph_written_node_by_node_is_what_protobuf_writes(tmp_path: Path) -> None:
    for graph_def in (cnn(), looped()):
        model = BACKEND.load(graph_def)
        path = BACKEND.save(model, tmp_path / "model.pb")
        assert path.read_bytes() == model.net.graph_def().SerializeToString(deterministic=True)


@pytest.mark.parametrize("size", [128, 300])
def test_an_op_with_a_big_constant_under_its_name_keeps_it(size: int) -> None:
    weight = np.random.default_rng(5).normal(size=(size, size)).astype(np.float32)
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, size), name="x")
        tf.raw_ops.MatMul(a=x, b=tf.constant(weight, name="y/w"), name="y")
    assert [op.name for op in graph.get_operations()] == ["x", "y/w", "y"]
    model = BACKEND.load(graph.as_graph_def())
    assert model.native.as_graph_def() == graph.as_graph_def()
    given = np.ones((2, size), np.float32)
    assert np.allclose(model.native(given), given @ weight, atol=1e-3)
