"""Calibration: one pass, snapshots, graphs that read their own data, and data that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from backends.tensorflow.nets import (
    Maker,
    cnn,
    graph_of,
    image,
    images,
    iterator_graph,
    little,
    write_lines,
)
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.runtime import tf
from lpot.core.backend import ModelSpec
from lpot.core.errors import CalibrationError, DataError
from lpot.core.ptq.distance import distance
from lpot.core.recipe import OpKey
from lpot.core.space import restrict

BACKEND = TensorflowBackend()
ITERATOR = ModelSpec(
    inputs=("input_file", "batch_size"), outputs=("IteratorGetNext:1", "unstack:0", "unstack:1")
)


def test_statistics_are_those_of_the_tensors() -> None:
    model = BACKEND.load(little(), ModelSpec(outputs=("stem/relu", "logits")))
    batches = images(3)
    found = BACKEND.observe(model, batches, (0,))[0]
    outputs = np.concatenate([BACKEND.run(model, batch)[0] for batch in batches])
    stats = found.tensors["stem/relu"]
    assert stats.minimum == outputs.min()
    assert stats.maximum == pytest.approx(outputs.max(), rel=1e-5)
    assert stats.count == outputs.size  # small enough to be taken whole
    assert found.samples == 12
    assert len(found.probe) == 3


def test_large_tensors_are_sampled_over_all_channels() -> None:
    def build(make: Maker) -> None:
        x = image(96)
        tf.identity(tf.nn.relu(make.conv(x, 8, name="op")), name="y")

    model = BACKEND.load(graph_of(build))
    batch = np.zeros((64, 16, 16, 96), np.float32)
    batch[..., 95] = np.arange(64 * 256).reshape(64, 16, 16)
    stats = BACKEND.observe(model, [(batch,)], (0,))[0].tensors["x"]
    assert stats.maximum == 64 * 256 - 1  # exact, though the values are sampled
    assert 32768 <= stats.count <= 65536 * 1.5
    assert stats.range("percentile")[1] > 10000  # the last channel was seen


def test_snapshots_grow_with_the_samples() -> None:
    model = BACKEND.load(little())
    batches = images(4)
    batches[3][0][0] *= 10
    found = BACKEND.observe(model, iter(batches), (4, 8, 0))
    assert [found[size].samples for size in (4, 8, 0)] == [4, 8, 16]
    assert found[8].tensors["x"].maximum * 5 < found[0].tensors["x"].maximum


def test_a_graph_that_reads_its_own_data(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "rows.txt", 20)
    model = BACKEND.load(iterator_graph(), ITERATOR)
    assert model.iter_op is not None
    batch = (str(file), 4)
    ids, start, end = BACKEND.run_all(model, batch)
    assert (ids.shape, start.shape, end.shape) == ((20,), (20,), (20,))
    first, *_ = BACKEND.run(model, batch)  # one step: what timing takes
    np.testing.assert_array_equal(first, ids[:4])
    found = BACKEND.observe(model, [batch], (6, 0))
    assert found[6].samples == 8  # ceil(6 / 4) steps of 4
    assert found[0].samples == 20
    recipe = restrict(BACKEND.inspect(model), ()).default()
    built = BACKEND.build(model, recipe, found[0])
    assert built.native.get_operation_by_name("MakeIterator").type == "MakeIterator"
    low = BACKEND.run_all(built, batch)
    np.testing.assert_array_equal(low[0], ids)
    assert 0 < np.abs(low[1] - start).max() < 0.1 * np.abs(start).max()
    assert set(BACKEND.rank(model, recipe, found[0])) == set(recipe.ops)


def test_an_own_reader_stops_at_the_samples_asked_for(tmp_path: Path) -> None:
    model = BACKEND.load(iterator_graph(), ITERATOR)
    found = BACKEND.observe(model, [(str(write_lines(tmp_path / "rows.txt", 40)), 4)], (10,))
    assert found[10].samples == 12


def test_the_file_of_an_own_reader_is_missing(tmp_path: Path) -> None:
    model = BACKEND.load(iterator_graph(), ITERATOR)
    with pytest.raises(DataError, match=r"nowhere\.txt"):
        BACKEND.observe(model, [(str(tmp_path / "nowhere.txt"), 4)], (0,))


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([], "no batch"),
        ([(np.full((2, 16, 16, 8), np.nan, np.float32),)], "NaN"),
        ([(np.zeros((2, 16, 16, 3), np.float32),)], "'x' expects shape"),
        ([(np.zeros((2, 16, 16, 8), np.float32), np.zeros(2))], "1 input"),
    ],
)
def test_calibration_data_that_is_wrong(batches: list[Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        BACKEND.observe(BACKEND.load(little()), batches, (0,))


def test_building_without_statistics_is_refused() -> None:
    model = BACKEND.load(little())
    recipe = restrict(BACKEND.inspect(model), ()).default()
    with pytest.raises(CalibrationError, match="calibration data"):
        BACKEND.build(model, recipe, None)


def test_a_batch_of_another_size_than_calibrated_runs() -> None:
    model = BACKEND.load(little())
    recipe = restrict(BACKEND.inspect(model), ()).default()
    built = BACKEND.build(model, recipe, BACKEND.observe(model, images(1, batch=2), (0,))[0])
    assert BACKEND.run(built, images(1, batch=7)[0])[0].shape == (7, 10)


def test_ranking_finds_the_op_that_hurts() -> None:
    def build(make: Maker) -> None:
        x = image()
        spread = np.exp2(np.linspace(-9, 0, 8)).astype(np.float32)
        torn = tf.nn.relu6(make.conv(x, 8, name="a")) * tf.constant(spread)
        undo = make.weight(3, 3, 8, 8) / tf.constant(spread[:, None])
        hurt = tf.nn.relu(tf.nn.conv2d(torn, undo, 1, "SAME", name="hurt"))
        tf.identity(tf.nn.relu(make.conv(hurt, 8, name="b")), name="y")

    model = BACKEND.load(graph_of(build))
    found = BACKEND.observe(model, images(2), (0,))[0]
    recipe = restrict(BACKEND.inspect(model), ()).default()
    sensitivity = BACKEND.rank(model, recipe, found)
    assert max(sensitivity, key=lambda key: sensitivity[key]) == OpKey("hurt", "Conv2D")
    assert sensitivity[OpKey("hurt", "Conv2D")] > 5 * sensitivity[OpKey("b", "Conv2D")]


def test_the_simulated_op_is_what_its_kernel_gives() -> None:
    model = BACKEND.load(cnn())
    found = BACKEND.observe(model, images(2), (0,))[0]
    recipe = restrict(BACKEND.inspect(model), ()).default()
    sensitivity = BACKEND.rank(model, recipe, found)
    assert len(sensitivity) == 12
    truth = BACKEND.run(model, found.probe[0])
    for key in list(sensitivity)[::3]:
        alone = recipe.with_float(other for other in recipe.low_ops if other != key)
        built = BACKEND.build(model, alone, found)
        assert sensitivity[key] == pytest.approx(
            distance(truth, BACKEND.run(built, found.probe[0])), rel=0.05
        )


def test_channels_that_only_the_data_tear_apart_are_equalized() -> None:
    """One channel adds up what cancels in the others: weights don't show it, activations do."""

    def build(make: Maker) -> None:
        random = np.random.default_rng(0)
        signs = np.where(np.arange(256) < 128, 1.0, -1.0)
        first = np.stack([np.ones(256), *(random.permutation(signs) for _ in range(7))], 1)
        taps = tf.constant(first.reshape(1, 1, 256, 8).astype(np.float32))
        x = tf.nn.relu(tf.nn.conv2d(image(256), taps, 1, "SAME", name="first"))
        one = tf.constant(np.eye(8, dtype=np.float32).reshape(1, 1, 8, 8))
        tf.identity(tf.nn.conv2d(x, one, 1, "SAME", name="second"), name="out")

    model = BACKEND.load(graph_of(build))
    random = np.random.default_rng(1)
    common, own = random.uniform(0.5, 1, (4, 16, 16, 1)), random.standard_normal((4, 16, 16, 256))
    batch = ((common + 0.05 * own).astype(np.float32),)
    recipe = restrict(BACKEND.inspect(model), ()).default()
    built = BACKEND.build(
        model,
        recipe.with_float([OpKey("second", "Conv2D")]),
        BACKEND.observe(model, [batch], (0,))[0],
    )
    # 0.002 with factors from the activations, 0.11 without.
    assert distance(BACKEND.run(model, batch), BACKEND.run(built, batch)) < 0.02
