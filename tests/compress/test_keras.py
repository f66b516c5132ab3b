"""Magnitude pruning of a Keras model, by one's own loop and by the yaml's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lpot.core.errors import ConfigError
from lpot.experimental import Pruning

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
        "lpot.backends.tensorflow.prune._step",
        lambda model, optimizer, *rest: rates.append(float(optimizer.learning_rate)),
    )
    told = conf(prune_type="basic_magnitude")
    told["pruning"]["train"] |= {"end_epoch": 2, "learning_rate_decay": "cosine"}
    prune = Pruning(told)
    prune.model, prune.train_dataloader = net(), [(IMAGES, LABELS)] * 2
    prune()
    assert rates == pytest.approx([0.05, 0.0427, 0.025, 0.0073], abs=1e-4)


def test_what_keras_does_not_keep_and_wrong_names_are_told() -> None:
    for pruner, said in (
        ({"prune_type": "group_lasso"}, "needs gradients"),
        ({"names": ["norm"]}, "has no weights to prune"),
        ({"names": ["cnv.kernel"]}, "did you mean 'conv.kernel'"),
    ):
        prune = Pruning(conf(**pruner))
        prune.model, prune.train_dataloader = net(), [(IMAGES, LABELS)]
        with pytest.raises(ConfigError, match=said):
            prune()
