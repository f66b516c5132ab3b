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
from lpot.backends.tensorflow.run import HEAVY, import_graph, open_session, session_config
from lpot.backends.tensorflow.runtime import GraphDef, tf, v1
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
    _, session = open_session(graph_def, quick=True)
    model = BACKEND.load(graph_def)
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
