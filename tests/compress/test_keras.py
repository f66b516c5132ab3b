"""Magnitude pruning of a Keras model, by one's own loop and by the yaml's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
from lpot.core.errors import ConfigError, TrainingError, UnsupportedModel
from lpot.experimental import Distillation, Pruning, Quantization, Scheduler

tf = pytest.importorskip("tensorflow")

DRAW = np.random.default_rng(0)
IMAGES = DRAW.normal(size=(64, 6, 6, 1)).astype(np.float32)
LABELS = (IMAGES.mean((1, 2, 3)) > 0).astype(np.int64)


def net() -> Any:
    tf.keras.utils.set_random_seed(0)
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((6, 6, 1)),
            layers.Conv2D(4, 3, activation="relu", name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.Flatten(),
            layers.Dense(2, name="fc"),
        ]
    )


def conf(**pruner: Any) -> dict[str, Any]:
    return {
        "model": {"name": "net", "framework": "tensorflow"},
        "pruning": {
            "train": {
                "end_epoch": 3,
                "optimizer": {"SGD": {"learning_rate": 0.05}},
                "criterion": {"CrossEntropyLoss": {}},
            },
            "approach": {
                "weight_compression": {"end_epoch": 3, "target_sparsity": 0.5, "pruners": [pruner]}
            },
        },
    }


def test_kernels_are_pruned_exactly_and_stay_zero() -> None:
    model = net()
    prune = Pruning(conf(prune_type="basic_magnitude"))
    prune.model, prune.train_dataloader = model, [(IMAGES, LABELS)] * 4
    prune()
    found = {layer.name: layer.share for layer in prune.result.sparsity.layers}
    assert found == {"conv.kernel": 0.5, "fc.kernel": 0.5}
    assert int((model.get_layer("fc").kernel.numpy() == 0).sum()) == 64


def test_the_learning_rate_falls_to_nothing_by_a_cosine(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    monkeypatch.setattr(
        "keras.optimizers.SGD.apply_gradients",
        lambda optimizer, pairs: rates.append(float(optimizer.learning_rate)),
    )
    told = conf(prune_type="basic_magnitude")
    told["pruning"]["train"] |= {"end_epoch": 2, "learning_rate_decay": "cosine"}
    prune = Pruning(told)
    prune.model, prune.train_dataloader = net(), [(IMAGES, LABELS)] * 2
    prune()
    assert rates == pytest.approx([0.05, 0.0427, 0.025, 0.0073], abs=1e-4)


def test_wrong_names_are_told() -> None:
    for pruner, said in (
        ({"names": ["norm"]}, "has no weights to prune"),
        ({"names": ["cnv.kernel"]}, "did you mean 'conv.kernel'"),
    ):
        prune = Pruning(conf(**pruner))
        prune.model, prune.train_dataloader = net(), [(IMAGES, LABELS)]
        with pytest.raises(ConfigError, match=said):
            prune()


@pytest.mark.parametrize("kind", ["gradient_sensitivity", "group_lasso"])
def test_gradients_are_known_in_the_loop_of_the_yaml_and_in_no_other(kind: str) -> None:
    found = {}
    for one in ("basic_magnitude", kind):
        model = net()
        prune = Pruning(conf(prune_type=one, parameters={"alpha": 0.5}))
        prune.model, prune.train_dataloader = model, [(IMAGES, LABELS)] * 4
        prune()
        assert {layer.share for layer in prune.result.sparsity.layers} == {0.5}
        found[one] = model.get_layer("fc").kernel.numpy()
    assert not np.array_equal(*found.values())

    def pruning_func(model: Any) -> None:
        prune.on_epoch_begin(0)
        prune.on_batch_end()
        prune.on_epoch_end()

    prune.pruning_func = pruning_func
    with pytest.raises(ConfigError, match=f"{kind} saw no gradients.*let `pruning.train` describe"):
        prune()


def inner(name: str) -> Any:
    given = tf.keras.Input((4, 4, 4))
    made = tf.keras.layers.Conv2D(4, 3, padding="same", name="conv")(given)
    return tf.keras.Model(given, made, name=name)


def test_layers_of_inner_models_and_attention_have_names_of_their_own() -> None:
    layers = tf.keras.layers
    images = tf.keras.Input((6, 6, 1))
    value = layers.SeparableConv2D(4, 3, name="apart")(images)
    value = inner("second")(inner("first")(value))
    value = layers.Reshape((16, 4))(value)
    value = layers.MultiHeadAttention(2, 2, name="attention")(value, value)
    value = layers.Bidirectional(layers.LSTM(3), name="both")(value)
    outputs = {"scores": layers.Dense(2, name="fc")(value), "also": value}
    model = tf.keras.Model(images, outputs)
    prune = Pruning(conf(names=["apart", "second", "attention", "both"]))
    prune.model, prune.train_dataloader = model, [(IMAGES, LABELS)]
    prune()
    pruned = {layer.name for layer in prune.result.sparsity.layers if layer.pruned}
    assert {"apart.depthwise_kernel", "apart.pointwise_kernel", "second.conv.kernel"} < pruned
    assert {f"attention.{each}.kernel" for each in ("query", "key", "value")} < pruned
    assert len(pruned) == 11 and "first.conv.kernel" not in pruned
    kernel = model.get_layer("second").get_layer("conv").kernel.numpy()
    assert int((kernel == 0).sum()) == kernel.size // 2
    assert model.get_layer("first").get_layer("conv").kernel.numpy().all()


class Written(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.fc = tf.keras.layers.Dense(2)

    def call(self, images: Any) -> Any:
        return self.fc(tf.reshape(images, (-1, 36)))


def test_a_model_without_weights_and_one_that_can_t_be_copied_are_told() -> None:
    model = Written()
    told = conf(prune_type="basic_magnitude")
    prune = Pruning(told)
    prune.model, prune.train_dataloader = model, [(IMAGES, LABELS)]
    with pytest.raises(UnsupportedModel, match="has no weights yet: call it on a batch"):
        prune()
    model(IMAGES)
    assert prune().native is not None
    told["pruning"]["train"]["criterion"] = {"KnowledgeDistillationLoss": {}}
    prune = Pruning(told)
    prune.model, prune.train_dataloader = model, [(IMAGES, LABELS)]
    with pytest.raises(ConfigError, match=r"Keras can't copy .*, which is to be its own teacher"):
        prune()


def test_a_loss_that_explodes_ends_the_training() -> None:
    told = conf(prune_type="basic_magnitude")
    told["pruning"]["train"]["optimizer"] = {"SGD": {"learning_rate": 1e30}}
    prune = Pruning(told)
    prune.model, prune.train_dataloader = net(), [(IMAGES, LABELS)] * 4
    with pytest.raises(TrainingError, match="the loss became"):
        prune()


def gap(*models: Any) -> float:
    one, other = (tf.nn.softmax(model(IMAGES)).numpy() for model in models)
    return float(np.abs(one - other).mean())


def test_a_student_learns_from_its_teacher_without_labels() -> None:
    teacher, student = net(), net()
    teacher.get_layer("fc").kernel.assign(-teacher.get_layer("fc").kernel)
    before = gap(teacher, student)
    loss = {"KnowledgeDistillationLoss": {"temperature": 2.0, "loss_weights": [0.0, 1.0]}}
    train = {"end_epoch": 60, "optimizer": {"Adam": {"learning_rate": 0.02}}, "criterion": loss}
    distill = Distillation({"distillation": {"train": train}})
    distill.student_model, distill.teacher_model = student, teacher
    distill.train_dataloader = [(IMAGES, None)]
    kept = teacher.get_weights()
    distill()
    assert gap(teacher, student) < before / 4
    assert all(map(np.array_equal, kept, teacher.get_weights()))


def test_a_chain_prunes_distills_and_quantizes(tmp_path: Path) -> None:
    prune = Pruning(conf(prune_type="basic_magnitude"))
    prune.train_dataloader = [(IMAGES, LABELS)]
    loss = {"KnowledgeDistillationLoss": {}}
    train = {"end_epoch": 2, "optimizer": {"SGD": {"learning_rate": 0.01}}, "criterion": loss}
    distill = Distillation({"distillation": {"train": train}})
    distill.teacher_model, distill.train_dataloader = net(), [(IMAGES, LABELS)]
    quantizer = Quantization({"tuning": {"workspace": {"path": str(tmp_path)}}})
    quantizer.calib_dataloader, quantizer.measure_speed = [(IMAGES, LABELS)], False
    scheduler = Scheduler()
    scheduler.model = net()
    scheduler.append(prune, distill, quantizer)
    made = scheduler()
    steps = scheduler.report().splitlines()
    assert [step.split(": ")[1][:12] for step in steps[:2]] == ["50.0 % zeros"] * 2
    assert "int8" in steps[2] and made.framework == "tensorflow"


def test_the_first_door_gives_the_keras_model() -> None:
    model = net()
    assert lpot.Pruning(conf(prune_type="basic_magnitude"))(model, [(IMAGES, LABELS)]) is model
