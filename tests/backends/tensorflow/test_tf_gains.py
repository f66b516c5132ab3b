"""What ops save: kernels and conversions timed alone, and ops judged by their neighbours."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from backends.tensorflow.nets import cnn, graph_of, image, images
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.runtime import GraphDef, tf
from lpot.core.backend import Observations
from lpot.core.recipe import Recipe

gaining = importlib.import_module("lpot.backends.tensorflow.gains")
BACKEND = TensorflowBackend()


@pytest.fixture(autouse=True)
def _own_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LPOT_CACHE", str(tmp_path / "cache"))


def ready(graph: GraphDef) -> tuple[Any, Recipe, Observations]:
    model = BACKEND.load(graph)
    able = {k: info.choices[0] for k, info in BACKEND.inspect(model).ops.items() if info.can_be_low}
    return model, Recipe(able), BACKEND.observe(model, images())[0]


def test_every_compute_op_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, recipe, seen = ready(cnn())
    found = BACKEND.gains(model, recipe, seen)
    compute = {key for key in recipe.ops if key.name in model.prepared.layers}
    assert compute and set(found) == compute
    assert all(abs(saved) < 10 for saved in found.values())

    def never(*args: Any) -> None:
        raise AssertionError("timed again")

    monkeypatch.setattr(gaining, "profile", never)
    assert BACKEND.gains(model, recipe, seen) == found


def chain(maker: Any) -> None:
    """Two convolutions in a row, and one between activations that have no INT8 kernel."""
    x = tf.nn.relu(maker.conv(image(), 8, name="first"))
    x = tf.nn.swish(maker.conv(x, 8, name="second"))
    tf.identity(tf.nn.swish(maker.conv(x, 8, name="alone")), name="out")


def test_conversions_count_where_neighbours_are_float(monkeypatch: pytest.MonkeyPatch) -> None:
    model, recipe, seen = ready(graph_of(chain))
    times = gaining.Times(fp32=5.0, int8=1.0, quantize=1.0, dequantize=2.0)
    monkeypatch.setattr(
        gaining, "_times", lambda *given: dict.fromkeys(model.prepared.layers, times)
    )
    found = {key.name: saved for key, saved in BACKEND.gains(model, recipe, seen).items()}
    assert found == {"first": 3.0, "second": 2.0, "alone": 1.0}


def test_a_loser_leaves_its_neighbours_to_be_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, recipe, seen = ready(graph_of(chain))
    good = gaining.Times(fp32=3.5, int8=1.0, quantize=1.0, dequantize=2.0)
    times = {"first": good, "second": good._replace(fp32=0.5), "alone": good._replace(fp32=9.0)}
    monkeypatch.setattr(gaining, "_times", lambda *given: times)
    found = {key.name: saved for key, saved in BACKEND.gains(model, recipe, seen).items()}
    assert found["second"] == -2.5
    # Between INT8 neighbours it would save 1.5; now it must give floats, too.
    assert found["first"] == -0.5


def test_where_all_ops_lose_the_least_loser_is_even(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search puts losers back together, and would have nothing to propose without any op."""
    model, recipe, seen = ready(graph_of(chain))
    bad = gaining.Times(fp32=1.0, int8=4.0, quantize=1.0, dequantize=1.0)
    times = {"first": bad, "second": bad._replace(fp32=0.5), "alone": bad._replace(int8=2.0)}
    monkeypatch.setattr(gaining, "_times", lambda *given: times)
    found = {key.name: saved for key, saved in BACKEND.gains(model, recipe, seen).items()}
    assert found["alone"] == 0.0 and max(found["first"], found["second"]) < 0.0


def test_each_node_takes_time_beside_its_kernel() -> None:
    model, recipe, seen = ready(graph_of(chain))
    layer = model.prepared.layers["alone"]
    shape = tuple(seen.shapes[layer.x][:4])
    lone = gaining._Lone(BACKEND, model.prepared.net, layer, shape, recipe.ops[layer.key], seen)
    kernels = sum(op.seconds for op in lone._slow)
    assert lone.seconds("fp32") == pytest.approx(kernels + gaining.DISPATCH * len(lone._slow))
