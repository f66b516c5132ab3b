"""Functions of the user's that train Keras models: the same rules as for torch modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lpot.core.errors import TrainingError
from lpot.experimental import Distillation, Pruning

tf = pytest.importorskip("tensorflow")

DRAW = np.random.default_rng(0)
DATA = [(DRAW.normal(size=(8, 4)).astype(np.float32), np.arange(8) % 3) for _ in range(3)]
TRAIN = {
    "end_epoch": 1,
    "optimizer": {"SGD": {"learning_rate": 0.1}},
    "criterion": {"KnowledgeDistillationLoss": {"loss_weights": [0.0, 1.0]}},
}
CONF = {
    "model": {"name": "net", "framework": "tensorflow"},
    "pruning": {
        "train": {**TRAIN, "criterion": {"CrossEntropyLoss": {}}},
        "approach": {"weight_compression": {"target_sparsity": 0.5, "end_epoch": 1}},
    },
    "distillation": {"train": TRAIN},
}


def net(seed: int = 0) -> Any:
    tf.keras.utils.set_random_seed(seed)
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Input((4,)), layers.Dense(8, "relu"), layers.Dense(3)])


def test_another_model_that_is_returned_is_the_trained_one() -> None:
    model, other = net(), net(1)
    prune = Pruning(CONF)

    def train(given: Any) -> Any:
        prune.on_epoch_begin(0)
        return other

    prune.model, prune.pruning_func = model, train
    prune()
    kept, wanted = model.get_weights()[0], other.get_weights()[0]
    assert np.array_equal(kept[kept != 0], wanted[kept != 0])
    assert np.count_nonzero(kept) == kept.size // 2
    assert prune.result is not None and any("another model" in one for one in prune.result.notes)


def test_loops_of_ones_own_learn_from_the_teacher() -> None:
    student, teacher = net(), net(1)
    inputs = np.concatenate([images for images, _ in DATA])

    def apart() -> float:
        wanted, found = (tf.nn.softmax(each(inputs)).numpy() for each in (teacher, student))
        return float(np.abs(wanted - found).mean())

    def train(model: Any) -> None:
        optimizer = tf.keras.optimizers.Adam(0.05)
        for images, _ in DATA * 15:
            with tf.GradientTape() as tape:
                output = model(images)
                loss = door.on_after_compute_loss(images, output, 0.0)
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    door = Distillation(CONF)
    door.student_model, door.teacher_model, door.train_func = student, teacher, train
    before = apart()
    door()
    assert apart() < 0.5 * before


@pytest.mark.parametrize("kind", [Pruning, Distillation])
def test_frozen_models_are_told(kind: Any) -> None:
    door, model = kind(CONF), net()
    model.trainable = False
    door.model, door.train_dataloader = model, DATA
    if kind is Distillation:
        door.teacher_model = net(1)
    with pytest.raises(TrainingError, match=r"frozen.*model\.trainable = True"):
        door()
