"""Every strategy on every backend, whichever way its metric is better."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpot.backends import get_backend
from lpot.core.errors import ConfigError
from lpot.core.goal import Goal
from lpot.jobs.tune.api import tune
from lpot.strategy import STRATEGIES

pytestmark = pytest.mark.slow

LIMIT = 3  # trials of a strategy that would go on
RNG = np.random.default_rng(0)


def onnx_net() -> tuple[str, Any, list[np.ndarray]]:
    pytest.importorskip("onnxruntime")
    from search.tear import depthwise_chain

    torn = depthwise_chain(0)
    return "onnx", torn.model, [batch[0] for batch in torn.batches]


def torch_net() -> tuple[str, Any, list[np.ndarray]]:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3)]
    layers += [torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10)]
    return "pytorch", torch.nn.Sequential(*layers).eval(), pictures((8, 3, 8, 8))


def tensorflow_net() -> tuple[str, Any, list[np.ndarray]]:
    tf = pytest.importorskip("tensorflow")
    tf.keras.utils.set_random_seed(0)
    layers = [tf.keras.layers.Conv2D(8, 3, activation="relu") for _ in range(2)]
    model = tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 3)),
            *layers,
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )
    return "tensorflow", model, pictures((8, 8, 8, 3))


def pictures(shape: tuple[int, ...]) -> list[np.ndarray]:
    return [RNG.standard_normal(shape).astype(np.float32) for _ in range(4)]


NETS: dict[str, Callable[[], tuple[str, Any, list[np.ndarray]]]] = {
    "onnx": onnx_net,
    "pytorch": torch_net,
    "tensorflow": tensorflow_net,
}


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@pytest.mark.parametrize("framework", NETS)
def test_strategies(framework: str, strategy: str, tmp_path: Path) -> None:
    if strategy in ("tpe", "bayesian"):
        pytest.importorskip("optuna")
    word, model, batches = NETS[framework]()
    backend = get_backend(word)
    loaded = backend.load(model)
    truth = [backend.run(loaded, (batch,))[0] for batch in batches]
    loss = list(zip(batches, truth, strict=True))
    labels = [(batch, outputs.argmax(-1)) for batch, outputs in loss]
    # A mean squared error gets better downwards, the share of right answers upwards.
    for higher, loader, metric in ((True, labels, {"topk": 1}), (False, loss, {"MSE": {}})):
        allowed = 0.6 if higher else float(np.mean(np.square(truth[0])))
        try:
            result = tune(
                model,
                [(batch,) for batch in batches],
                eval_loader=loader,
                metric=metric,
                goal=Goal(absolute=allowed, higher_is_better=higher),
                framework=word,
                strategy=strategy,
                max_trials=LIMIT,
                workspace=tmp_path / str(higher),
                measure_speed=False,
            )
        except ConfigError as error:
            # What this backend or this CPU lacks is said, with what to use instead.
            assert strategy in ("hawq_v2", "auto_mixed_precision", "automixedprecision")
            assert "use " in str(error)
            return
        assert result.met and result.trials and len(result.trials) <= LIMIT
        assert any(trial.score is not None for trial in result.trials)
