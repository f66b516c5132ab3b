"""A Keras training of the yaml that was stopped goes on behind the last epoch that was kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from lpot.core.compress import resume
from lpot.experimental import Pruning

DRAW = np.random.default_rng(0)
IMAGES = DRAW.normal(size=(40, 6)).astype(np.float32)
BATCHES = [
    (IMAGES[i : i + 8], (IMAGES[i : i + 8, 0] > 0).astype(np.int64)) for i in range(0, 40, 8)
]


def net() -> Any:
    tf.keras.utils.set_random_seed(3)
    layers = [
        tf.keras.Input((6,)),
        tf.keras.layers.Dense(16, activation="relu"),
        tf.keras.layers.Dropout(0.3, seed=1),
        tf.keras.layers.Dense(2),
    ]
    return tf.keras.Sequential(layers)


def pruning(folder: Path) -> Pruning:
    door = Pruning(
        {
            "model": {"name": "net", "framework": "tensorflow"},
            "pruning": {
                "train": {
                    "start_epoch": 0,
                    "end_epoch": 5,
                    "optimizer": {"Adam": {"learning_rate": 0.01}},
                    "criterion": {"CrossEntropyLoss": {}},
                },
                "approach": {"weight_compression": {"target_sparsity": 0.5, "end_epoch": 5}},
            },
            "tuning": {"workspace": {"path": str(folder)}},
        }
    )
    door.model, door.train_dataloader = net(), BATCHES
    return door


def test_it_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "EVERY", 0.0)
    whole = pruning(tmp_path / "whole")
    whole()
    cut = pruning(tmp_path / "part")

    def stop(epoch: int) -> None:
        if epoch == 3:
            raise KeyboardInterrupt

    cut.register_hook("on_epoch_begin", stop)
    with pytest.raises(KeyboardInterrupt):
        cut()
    again = pruning(tmp_path / "part")
    began: list[int] = []
    again.register_hook("on_epoch_begin", began.append)
    again()
    assert began == [3, 4]
    for one, other in zip(again.model.get_weights(), whole.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not list(tmp_path.rglob("*.npz"))
