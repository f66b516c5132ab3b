"""What is left of a Keras model, fitted to the full one by least squares and trained after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("sklearn")

from tests.compress.keras_nets import batch, residual, stirred  # noqa: E402

from lpot.backends.tensorflow.pruning import distill as distilling  # noqa: E402
from lpot.backends.tensorflow.pruning.cut import left_of, rebuilt, removed  # noqa: E402
from lpot.backends.tensorflow.pruning.distill import (  # noqa: E402
    Scores,
    distill,
    watched_layers,
)
from lpot.backends.tensorflow.pruning.record import find_blocks, find_groups  # noqa: E402
from lpot.backends.tensorflow.pruning.refit import _sum, refit  # noqa: E402
from lpot.backends.tensorflow.pruning.walk import run  # noqa: E402
from lpot.backends.tensorflow.pruning.wiring import Wiring  # noqa: E402
from lpot.core.compress.settings import Distill  # noqa: E402
from lpot.core.errors import DataError, TrainingError  # noqa: E402

layers = tf.keras.layers
keras = tf.keras
PLAIN = Distill(epochs=12, learning_rate=3e-3, mixup=False)


def batches(count: int, seed: int) -> list[list[Any]]:
    return [[tf.constant(batch(16, 8, 8, 1, seed=seed + at))] for at in range(count)]


def error(one: Any, other: Any) -> float:
    """On batches that nothing was fitted to."""
    pairs = [(run(one, x)[0].numpy(), run(other, x)[0].numpy()) for x in batches(2, 90)]
    return float(sum(((a - b) ** 2).mean() / (b**2).mean() for a, b in pairs))


def logits() -> Any:
    """A residual net that ends in scores."""
    keras.utils.set_random_seed(0)
    model = residual()
    model.get_layer("fc").activation = keras.activations.linear
    return rebuilt(stirred(model))


def test_a_branch_that_is_gone_is_made_up_for() -> None:
    full = logits()
    small = rebuilt(full, blocks=[find_blocks(full)["block1"]])
    before = error(small, full)
    fitted = refit(small, full, batches(3, 1))
    assert error(small, full) < 0.5 * before
    # What lies before the cut sees what it always saw, and stays.
    assert fitted == ["a2", "b2", "fc"]


def test_units_that_are_gone_are_made_up_for_and_a_look_ends_early() -> None:
    full = logits()
    groups = find_groups(full)
    kept = {"a0": tuple(range(8)), "a1": tuple(range(12))}
    masks = left_of(full, groups, kept)
    looked, whole = (removed(full, groups, kept) for _ in range(2))
    before = error(looked, full)
    assert refit(looked, full, batches(3, 1), masks, most=1) == ["b0", "a1"]
    assert error(looked, full) < before
    assert refit(whole, full, batches(3, 1), masks) == ["b0", "a1", "b1", "a2", "b2", "fc"]
    assert error(whole, full) < error(looked, full)


@pytest.mark.parametrize("norm", [False, True])
def test_the_end_of_a_branch_makes_up_for_its_stream(norm: bool) -> None:
    """Also through a norm before the sum."""
    keras.utils.set_random_seed(0)
    x = given = keras.Input((8, 8, 1))
    x = layers.Conv2D(6, 3, padding="same", name="stem")(x)
    one = layers.Add(name="one")([x, layers.Conv2D(6, 3, padding="same", name="lost")(x)])
    two = layers.Conv2D(6, 3, padding="same", name="b")(one)
    two = layers.BatchNormalization(name="norm")(two) if norm else two
    full = rebuilt(stirred(keras.Model(given, layers.Add(name="two")([one, two]))))
    small = rebuilt(full, blocks=[find_blocks(full)["one"]])
    before = error(small, full)
    assert refit(small, full, batches(3, 1)) == ["b"]
    # Linear up to the borders: `b` can be what it was and what is gone, both.
    assert error(small, full) < 0.25 * before


def test_a_branch_that_ends_in_an_activation_is_fitted_to_what_it_gave() -> None:
    """Below zero it gives nothing, so it can't make up for what a stream lacks."""
    x = given = keras.Input((8, 8, 1))
    x = layers.Conv2D(6, 3, padding="same", name="a")(x)
    x = layers.Add()([x, layers.Conv2D(6, 1, activation="relu", name="b")(x)])
    x = layers.Add()([x, layers.Conv2D(6, 1, name="c")(x)])
    wiring = Wiring(rebuilt(keras.Model(given, x)))
    assert [_sum(wiring, name) is None for name in "abc"] == [True, True, False]


def test_convolutions_of_one_dimension_and_dense_layers_are_fitted_to_what_they_were() -> None:
    keras.utils.set_random_seed(0)
    x = given = keras.Input((12, 3))
    x = layers.Conv1D(8, 3, strides=2, padding="same", activation="relu", name="a")(x)
    x = layers.Conv1D(5, 3, dilation_rate=2, name="b", use_bias=False)(x)
    full = rebuilt(keras.Model(given, layers.Dense(4, name="c")(layers.Flatten()(x))))
    small = rebuilt(full)
    for layer in small.layers:
        if layer.name in ("b", "c"):
            layer.kernel.assign(layer.kernel * 0.5)
    a = small.get_layer("a")
    a.bias.assign(a.bias + 1e-3)  # so that what comes behind sees something else
    data = [[tf.constant(batch(64, 12, 3, seed=at))] for at in range(2)]
    assert refit(small, full, data) == ["b", "c"]
    for name in ("b", "c"):
        wanted, got = (one.get_layer(name).kernel.numpy() for one in (full, small))
        assert np.abs(got - wanted).max() < 0.05 * np.abs(wanted).max()


# -- training -------------------------------------------------------------------------------------


def data(count: int = 4) -> list[np.ndarray]:
    return [batch(16, 8, 8, 1, seed=at) for at in range(count)]


def read(raw: Any) -> Any:
    images, labels = raw if isinstance(raw, tuple) else (raw, None)
    return [tf.constant(images)], labels


def pair(full: Any) -> tuple[Any, Any]:
    """A student whose convolutions are off, and its teacher."""
    student = rebuilt(full)
    draw = np.random.default_rng(0)
    for layer in student.layers:
        if isinstance(layer, layers.Conv2D):
            noise = 0.1 * draw.normal(size=layer.kernel.shape)
            layer.kernel.assign_add(noise.astype(np.float32))
    return student, full


def test_a_student_learns_after_its_teacher_which_stays() -> None:
    student, teacher = pair(logits())
    kept, before = teacher.get_weights(), error(student, teacher)
    distill(student, teacher, data(), read, PLAIN)
    assert error(student, teacher) < 0.5 * before
    assert all(map(np.array_equal, kept, teacher.get_weights()))
    norms = [one for one in student.layers if isinstance(one, keras.layers.BatchNormalization)]
    assert {norm.momentum for norm in norms} == {0.8}  # as it was made


def test_the_same_training_gives_the_same_weights() -> None:
    """Layers that draw random numbers draw the same; mixed pictures are others."""
    x = given = keras.Input((8, 8, 1))
    x = layers.Dropout(0.3)(layers.Conv2D(6, 3, activation="relu")(x))
    made = keras.Model(given, layers.Dense(4)(layers.GlobalAveragePooling2D()(x)))
    found = []
    for mixup in (True, True, False):
        full = rebuilt(made)
        student, teacher = pair(full)
        distill(student, teacher, data(), read, replace(PLAIN, epochs=3, mixup=mixup))
        found.append(student.get_weights())
    assert all(map(np.array_equal, found[0], found[1]))
    assert not all(map(np.array_equal, found[0], found[2]))


def test_mixed_pictures_have_no_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(distilling, "_mixed", lambda values, draw: [2 * values[0]])
    monkeypatch.setattr(
        distilling._Trainer, "step", lambda trainer, values, labels, rate: seen.append(labels)
    )
    given = [(images, np.zeros(16, np.int64)) for images in data(1)]
    settings = replace(PLAIN, labels=1.0, mixup=True, epochs=10)
    distill(*pair(logits()), given, read, settings)
    assert [labels is None for labels in seen] == [True] * 9 + [False]  # the last are as they are


def test_blocks_alone_leave_what_is_behind_them_as_it_was() -> None:
    student, teacher = pair(logits())
    distill(student, teacher, data(), read, replace(PLAIN, logits=0.0))
    one, other = (model.get_layer("fc").get_weights() for model in (student, teacher))
    assert all(map(np.array_equal, one, other))
    assert error(student, teacher) < 0.5 * error(pair(teacher)[0], teacher)


def test_ends_of_blocks_are_compared_where_both_have_them() -> None:
    full = logits()
    blocks = find_blocks(full)

    def watched(*gone: str) -> list[str]:
        small = rebuilt(full, blocks=[blocks[name] for name in gone])
        return watched_layers(Wiring(small), Wiring(full))

    assert watched() == ["end0", "end1", "end2"]
    assert watched("block1") == ["end1", "end2"]  # what the first gives is now for both
    assert watched("block0") == ["end1", "end2"]
    assert watched("block2") == ["end0", "end2"]


def test_labels_count_only_where_they_are_asked_for() -> None:
    labels = np.zeros(16, np.int64)
    given = [(images, labels) for images in data()]
    shares = []
    for weight in (0.0, 5.0):
        student, teacher = pair(logits())
        distill(student, teacher, given, read, replace(PLAIN, labels=weight))
        scores = np.concatenate([run(student, x)[0].numpy() for x in batches(2, 90)])
        shares.append((scores.argmax(1) == 0).mean())
    assert shares[1] > 0.9 > shares[0]


class Gone:
    """A loader without batches, of a length nobody knows."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def test_a_loss_that_explodes_and_a_loader_without_batches_are_told() -> None:
    student, teacher = pair(logits())
    with pytest.raises(TrainingError, match="lower the learning rate"):
        distill(student, teacher, data(), read, replace(PLAIN, learning_rate=1e30))
    with pytest.raises(DataError, match="no batches"):
        distill(student, teacher, Gone(), read, PLAIN)


def test_a_softmax_at_the_end_is_compared_like_the_scores_before_it() -> None:
    one, two = (tf.constant(batch(6, 4, seed=seed)) for seed in (0, 1))
    soft = [tf.nn.softmax(each) for each in (one, two)]
    plain = Scores("scores").apart(one, two, 4.0)
    assert Scores.of(soft[0].numpy()) == Scores("probabilities")
    assert float(Scores("probabilities").apart(*soft, 4.0)) == pytest.approx(float(plain), rel=1e-4)
    # Scores of several classes may be shifted together, shares may not.
    assert float(Scores("scores").apart(one, one + 1, 4.0)) == pytest.approx(0, abs=1e-5)
    assert float(Scores("shares").apart(one, one + 1, 4.0)) > 0.1


@pytest.mark.parametrize("kind", ["scores", "probabilities"])
def test_cross_entropy_takes_class_numbers_and_rows(kind: Any) -> None:
    scores = tf.constant([[2.0, 0.0], [0.0, 1.0]])
    output = tf.nn.softmax(scores) if kind == "probabilities" else scores
    wanted = float(tf.reduce_mean(-tf.nn.log_softmax(scores)[:, 0]))
    numbers, rows = tf.constant([0, 0]), tf.constant([[1.0, 0.0], [1.0, 0.0]])
    for labels in (numbers, rows):
        found = float(Scores(kind).cross_entropy(output, labels))
        assert found == pytest.approx(wanted, rel=1e-4)


def test_classes_of_each_position_are_classes_too() -> None:
    scores = tf.constant(batch(2, 5, 5, 3))
    soft = tf.nn.softmax(scores)
    assert Scores.of(soft.numpy()) == Scores("probabilities")
    numbers = tf.argmax(scores, -1)
    wanted = float(tf.reduce_mean(-tf.reduce_max(tf.nn.log_softmax(scores), -1)))
    assert float(Scores("probabilities").cross_entropy(soft, numbers)) == pytest.approx(wanted)


def test_one_share_and_one_score_are_yes_or_no() -> None:
    scores, labels = tf.constant([[2.0], [-1.0]]), tf.constant([[1.0], [0.0]])
    wanted = float(tf.reduce_mean(tf.math.log1p(tf.exp(tf.constant([-2.0, -1.0])))))
    assert float(Scores("values").cross_entropy(scores, labels)) == pytest.approx(wanted, rel=1e-3)
    shares = tf.sigmoid(scores)
    assert float(Scores("shares").cross_entropy(shares, labels)) == pytest.approx(wanted, rel=1e-3)
