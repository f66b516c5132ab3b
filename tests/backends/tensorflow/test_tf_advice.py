"""Advice from statistics: smoothing that changes no bit, outlier channels set apart, long tails."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import lpot
from backends.tensorflow.nets import Maker, block, cnn, graph_of, images
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.passes.split_outliers import outlier_channels
from lpot.backends.tensorflow.repair import repair
from lpot.backends.tensorflow.runtime import GraphDef, tf, v1
from lpot.backends.tensorflow.structure.graph import Net
from lpot.core.backend import Observations
from lpot.core.files.store import load_observations, save_observations
from lpot.core.numerics.observations import Extremes
from lpot.core.ptq.distance import distance
from lpot.core.recipe import Recipe
from lpot.core.repairs import Repairs
from lpot.core.space import restrict

BACKEND = TensorflowBackend()
WIDTH = 64
OUTLIERS = [3, 40]


def norm(make: Maker, x: Any, outliers: float = 1.0) -> Any:
    """LayerNorm as TensorFlow 1 spells it, with two channels far above the others."""
    gamma = np.ones(WIDTH, np.float32)
    gamma[OUTLIERS] = outliers
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(
        x, mean, variance, make.vector(WIDTH), tf.constant(gamma), 1e-6
    )


def gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + tf.math.erf(x / 1.4142135624))


def dense(make: Maker, x: Any, width: int, name: str, quiet: bool = False) -> Any:
    """A product; a quiet one makes little of the outlying channels, as trained nets do."""
    fan = int(x.shape[-1])
    values = (make.random.normal(size=(fan, width)) / np.sqrt(fan)).astype(np.float32)
    if quiet:
        values[OUTLIERS] /= 30
    product = tf.matmul(x, tf.constant(values), name=f"{name}/MatMul")
    return tf.nn.bias_add(product, make.vector(width), name=f"{name}/BiasAdd")


def post_norm(make: Maker) -> None:
    """Products and a residual sum read what LayerNorm gives, as in BERT."""
    x = norm(make, v1.placeholder(tf.float32, [None, WIDTH], name="x"), 30.0)
    one, other = (dense(make, x, WIDTH, name, quiet=True) for name in ("query", "key"))
    tf.identity(norm(make, tf.tanh(one) * tf.tanh(other) + x), name="y")


def pre_norm(make: Maker) -> None:
    """Products alone read what LayerNorm gives, as in GPT; through a Reshape."""
    x = v1.placeholder(tf.float32, [None, 4, WIDTH], name="x")
    flat = tf.reshape(norm(make, x, 30.0), [-1, WIDTH])
    one, other = (dense(make, flat, WIDTH, name, quiet=True) for name in ("query", "key"))
    tf.identity(tf.reshape(tf.tanh(one) * other, [-1, 4, WIDTH]) + x, name="y")


def feed_forward(residual: bool = True, transposed: bool = False) -> Callable[[Maker], None]:
    """Two products with GELU between them, and two of its channels far above the others."""

    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, WIDTH], name="x")
        up = make.random.normal(size=(WIDTH, 4 * WIDTH)).astype(np.float32) / 8.0
        up[:, OUTLIERS] *= 30
        down = make.random.normal(size=(4 * WIDTH, WIDTH)).astype(np.float32) / 16.0
        down[OUTLIERS] /= 30
        weights = [tf.constant(w.T if transposed else w) for w in (up, down)]
        wide = tf.matmul(x, weights[0], transpose_b=transposed, name="up/MatMul")
        wide = gelu(tf.nn.bias_add(wide, make.vector(4 * WIDTH)))
        thin = tf.matmul(wide, weights[1], transpose_b=transposed, name="down/MatMul")
        thin = tf.nn.bias_add(thin, make.vector(WIDTH))
        tf.identity(thin + x if residual else tf.abs(thin), name="y")

    return build


class Seen:
    """A model calibrated on noise."""

    def __init__(self, build: Callable[[Maker], None] | GraphDef, *shape: int) -> None:
        random = np.random.default_rng(5)
        self.model = BACKEND.load(build if isinstance(build, GraphDef) else graph_of(build))
        size = (16, *(shape or (WIDTH,)))
        self.batches = [(random.normal(size=size).astype(np.float32),) for _ in range(4)]
        self.recipe = restrict(BACKEND.inspect(self.model), ()).default()
        self.found: Observations = BACKEND.observe(self.model, self.batches, (0,))[0]

    def with_repairs(self, **repairs: Any) -> Recipe:
        return replace(self.recipe, repairs=Repairs(**repairs))

    def repaired(self, **repairs: Any) -> Net:
        repaired = repair(self.model.prepared, self.with_repairs(**repairs), self.found)
        return repaired.prepared.net

    def advice(self) -> list[Recipe]:
        return list(BACKEND.advise(self.model, self.recipe, self.found))

    def error(self, recipe: Recipe) -> float:
        truth = [BACKEND.run(self.model, batch) for batch in self.batches]
        built = BACKEND.build(self.model, recipe, self.found)
        found = [BACKEND.run(built, batch) for batch in self.batches]
        return sum(map(distance, truth, found))


def in_float(net: Net, batch: Any) -> np.ndarray:
    return BACKEND.run(TensorflowModel(BACKEND, net), batch)[0]


def kinds(net: Net) -> Counter[str]:
    return Counter(node.op for node in net.nodes.values())


@pytest.mark.parametrize("alpha", [0.35, 0.8])
@pytest.mark.parametrize(("build", "shape"), [(post_norm, (WIDTH,)), (pre_norm, (4, WIDTH))])
def test_smoothing_changes_no_bit_of_fp32(build: Any, shape: tuple[int, ...], alpha: float) -> None:
    seen = Seen(build, *shape)
    plain, smooth = seen.repaired(), seen.repaired(smoothing=alpha)
    assert plain is not smooth
    for batch in seen.batches:
        np.testing.assert_array_equal(in_float(plain, batch), in_float(smooth, batch))


def test_factors_go_into_a_norm_that_only_products_read() -> None:
    seen = Seen(pre_norm, 4, WIDTH)
    plain, smooth = seen.repaired(), seen.repaired(smoothing=0.5)
    assert kinds(plain)["Mul"] == kinds(smooth)["Mul"]
    built = BACKEND.build(seen.model, seen.with_repairs(smoothing=0.5), seen.found)
    assert kinds(built.net)["QuantizeV2"] == 1  # both products read the same


def test_a_norm_with_other_readers_gets_one_product_for_all() -> None:
    seen = Seen(post_norm)
    plain, smooth = seen.repaired(), seen.repaired(smoothing=0.5)
    assert kinds(smooth)["Mul"] == kinds(plain)["Mul"] + 1
    built = BACKEND.build(seen.model, seen.with_repairs(smoothing=0.5), seen.found)
    assert kinds(built.net)["QuantizeV2"] == 1


@pytest.mark.parametrize(("build", "shape"), [(post_norm, (WIDTH,)), (pre_norm, (4, WIDTH))])
def test_smoothing_brings_the_outputs_nearer(build: Any, shape: tuple[int, ...]) -> None:
    seen = Seen(build, *shape)
    usual = seen.error(seen.recipe)
    advice = [recipe for recipe in seen.advice() if recipe.repairs.smoothing is not None]
    assert len(advice) == 4
    assert min(map(seen.error, advice)) < 0.3 * usual


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_loud_channels_are_set_apart(residual: bool, transposed: bool) -> None:
    seen = Seen(feed_forward(residual, transposed))
    plain, split = seen.repaired(), seen.repaired(outlier_split=True)
    for batch in seen.batches:
        np.testing.assert_allclose(in_float(plain, batch), in_float(split, batch), atol=1e-5)
    recipe = next(recipe for recipe in seen.advice() if recipe.repairs.outlier_split)
    built = BACKEND.build(seen.model, recipe, seen.found)
    # Two narrow products more, and neither a conversion nor a sum.
    assert kinds(built.net)["_QuantizedMatMul"] == 4
    assert kinds(built.net)["QuantizeV2"] == 1
    assert kinds(built.net)["AddV2"] == 0
    assert set(built.precisions) == set(seen.recipe.ops)
    assert seen.error(recipe) < 0.1 * seen.error(seen.recipe)


def test_a_split_holds_when_an_op_goes_back_to_float() -> None:
    seen = Seen(feed_forward())
    recipe = seen.with_repairs(outlier_split=True)
    for key in recipe.low_ops:
        built = BACKEND.build(seen.model, recipe.with_float([key]), seen.found)
        assert built.precisions[key] == "fp32"
        assert seen.error(recipe.with_float([key])) < 1e-3
    assert seen.error(recipe.with_float(recipe.low_ops)) < 1e-10


def test_loud_channels_are_few() -> None:
    def outliers(*values: float) -> list[int]:
        largest = np.ones(64)
        largest[: len(values)] = values
        return outlier_channels(Extremes(-largest, np.zeros(64))).tolist()

    assert outliers(1.5, 9.0) == [1]
    assert outliers(1.5) == []
    assert outliers(9.0, 9.0, 9.0, 9.0) == [0, 1, 2, 3]
    assert outliers(9.0, 9.0, 9.0, 9.0, 9.0) == []  # then it is no longer a few
    assert outlier_channels(Extremes(np.zeros(64), np.zeros(64))).size == 0
    assert outlier_channels(Extremes(np.zeros(8), np.arange(8.0))).size == 0


@pytest.mark.parametrize("graph", [block, cnn])
def test_sound_nets_get_no_repairs(graph: Callable[[], GraphDef]) -> None:
    model = BACKEND.load(graph())
    random = np.random.default_rng(1)
    rows = [(random.normal(size=(16, 32)).astype(np.float32),)]
    recipe = restrict(BACKEND.inspect(model), ()).default()
    found = BACKEND.observe(model, images() if graph is cnn else rows, (0,))[0]
    assert all(not advice.repairs for advice in BACKEND.advise(model, recipe, found))


def test_a_graph_without_products_is_left_alone() -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 16, 16, 8], name="x")
        tf.identity(tf.nn.relu(make.conv(x, 8)), name="y")

    seen = Seen(build, 16, 16, 8)
    assert not seen.found.channels
    assert seen.repaired(outlier_split=True, smoothing=0.5) is seen.repaired()
    nothing = seen.recipe.with_float(seen.recipe.low_ops)
    assert list(BACKEND.advise(seen.model, nothing, seen.found)) == []


def test_long_tails_get_another_range() -> None:
    seen = Seen(feed_forward())
    for _ in range(40):
        seen.found.tensors["x"].update(np.random.default_rng(0).standard_normal(100_000))
    seen.found.tensors["x"].update([40.0])
    first = seen.advice()[0]
    changed = {key.name: config.activation.algorithm for key, config in first.ops.items()}
    assert changed["up/MatMul"] != "minmax" and not first.repairs
    choices = restrict(BACKEND.inspect(seen.model), ()).choices
    assert all(config in choices[key] for key, config in first.ops.items())


def test_ranking_knows_of_repairs() -> None:
    seen = Seen(feed_forward())
    usual = BACKEND.rank(seen.model, seen.recipe, seen.found)
    split = BACKEND.rank(seen.model, seen.with_repairs(outlier_split=True), seen.found)
    assert set(usual) == set(split)
    worst = max(usual, key=lambda key: usual[key])
    assert split[worst] < 0.2 * usual[worst]


def test_repairs_survive_disk(tmp_path: Path) -> None:
    seen = Seen(feed_forward())
    save_observations(tmp_path / "seen.npz", {0: seen.found})
    again = load_observations(tmp_path / "seen.npz")[0]
    recipe = Recipe.from_json(seen.with_repairs(outlier_split=True, smoothing=0.5).to_json())
    first, second = (
        BACKEND.run(BACKEND.build(seen.model, recipe, known), seen.batches[0])[0]
        for known in (seen.found, again)
    )
    np.testing.assert_array_equal(first, second)


def test_advice_is_kept_with_the_run(tmp_path: Path) -> None:
    seen = Seen(feed_forward())
    truth = [BACKEND.run(seen.model, batch)[0] for batch in seen.batches]

    def near(graph: Any) -> float:
        with v1.Session(graph=graph) as session:
            found = [session.run("y:0", {"x:0": batch[0]}) for batch in seen.batches]
        return 1.0 - distance(truth, found)

    def tuned() -> Any:
        return lpot.tune(
            graph_of(feed_forward()),
            [(batch[0], 0) for batch in seen.batches],
            near,
            goal=0.01,
            strategy="basic",
            workspace=tmp_path / "run",
            measure_speed=False,
        )

    first = tuned()
    kept = next((tmp_path / "run").glob("advice-*.json"))
    assert "split_outliers" in json.loads(kept.read_text())["repairs"]
    assert any("split_outliers" in note for note in first.notes)
    assert first.recipe.repairs.bias_correction  # by default
    written = kept.read_text()
    again = tuned()
    assert again.recipe == first.recipe and again.recipe.repairs.outlier_split
    assert kept.read_text() == written
