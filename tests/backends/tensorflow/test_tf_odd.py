"""Graphs of odd structure, through every verb and through both ways in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import lpot
from backends.tensorflow.odd_nets import ODD, Odd, functions, old_control_flow, several_inputs
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.core.backend import ModelSpec
from lpot.core.progress import Listener
from lpot.core.space import restrict

BACKEND = TensorflowBackend()


@pytest.mark.slow
@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)
def test_an_odd_graph_is_quantized_and_near_the_truth(
    tmp_path: Path, make: Callable[[], Odd]
) -> None:
    source, batches, outputs = make()
    model = BACKEND.load(source, ModelSpec(outputs=outputs))
    recipe = restrict(BACKEND.inspect(model), ()).default()
    assert recipe.low_ops
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, recipe, observations)
    assert "int8" in built.precisions.values()
    assert BACKEND.rank(model, recipe, observations)
    again = BACKEND.restore(built.save(tmp_path / "net"))
    for batch in batches:
        truth, found, saved = (BACKEND.run(one, batch) for one in (model, built, again))
        for exact, near, same in zip(truth, found, saved, strict=True):
            np.testing.assert_array_equal(near, same)
            error = np.square(near.astype(np.float64) - exact).mean()
            assert error < 0.01 * np.square(exact).mean() + 1e-9


@pytest.mark.parametrize(
    "make", [pytest.param(several_inputs, marks=pytest.mark.slow), old_control_flow, functions]
)
def test_both_ways_in(tmp_path: Path, make: Callable[[], Odd]) -> None:
    source, batches, outputs = make()
    model = BACKEND.load(source, ModelSpec(outputs=outputs))
    truth = [BACKEND.run(model, batch) for batch in batches]

    def score(graph: tf.Graph) -> float:
        errors = []
        with v1.Session(graph=graph) as session:
            for batch, exact in zip(batches, truth, strict=True):
                feeds = dict(zip(model.input_tensor_names, batch, strict=True))
                found = session.run(model.output_tensor_names, feeds)
                errors += [float(np.abs(a - b).mean()) for a, b in zip(found, exact, strict=True)]
        return 1.0 - float(np.mean(errors))

    calib = [(batch if len(batch) > 1 else batch[0], 0) for batch in batches]
    config: dict[str, Any] = {"model": {"framework": "tensorflow"}}
    result = lpot.tune(
        source, calib, score, 0.2, config=config, workspace=tmp_path / "a", measure_speed=False
    )
    assert result.met and result.precisions["int8"] > 0
    quantizer = lpot.Quantization(
        {**config, "tuning": {"workspace": {"path": str(tmp_path / "b")}}}
    )
    quantizer.listener, quantizer.measure_speed = Listener(), False
    graph = quantizer(source, q_dataloader=calib, eval_func=score)
    assert score(graph) == pytest.approx(result.accuracy, abs=0.02)
    assert graph.as_graph_def().node
